//! Abilities of models and servers, from their ids, hosts and [`ModelInfo::compat`].

use quackd_protocol::model::{ModelApi, ModelInfo, ThinkingLevel};

/// Returns the level that a model can have: off if it does not reason, high instead of an unsupported xhigh.
#[must_use]
pub fn clamp(level: ThinkingLevel, model: &ModelInfo) -> ThinkingLevel {
    match level {
        _ if !model.reasoning => ThinkingLevel::Off,
        ThinkingLevel::Xhigh if !has_xhigh(model) => ThinkingLevel::High,
        level => level,
    }
}

/// Returns the levels of a model, from the lowest.
#[must_use]
pub fn levels(model: &ModelInfo) -> Vec<ThinkingLevel> {
    ThinkingLevel::ALL.into_iter().filter(|level| clamp(*level, model) == *level).collect()
}

/// Whether the provider can hold a model to a JSON schema. Servers that are not known may.
#[must_use]
pub fn has_schemas(model: &ModelInfo) -> bool {
    let id = model.id.to_ascii_lowercase();
    match model.api {
        ModelApi::OpenAiResponses => true,
        // DeepSeek knows `json_object` only: <https://api-docs.deepseek.com/guides/json_mode>.
        ModelApi::OpenAiCompletions => {
            model.provider != "deepseek" && !model.base_url.contains("api.deepseek.com")
        }
        ModelApi::AnthropicMessages => {
            let version_of = id.split_once("claude").map(|(_, rest)| version(rest));
            version_of.is_some_and(|number| (4, 5) <= number)
        }
    }
}

fn has_xhigh(model: &ModelInfo) -> bool {
    let id = model.id.to_ascii_lowercase();
    let gpt = id.split_once("gpt-").map(|(_, rest)| version(rest));

    let is_gpt = id.contains("gpt-5.1-codex-max") || gpt.is_some_and(|number| number >= (5, 2));
    match model.api {
        ModelApi::AnthropicMessages => is_adaptive(model) && id.contains("opus"),
        _ => is_gpt,
    }
}

/// Returns the effort with which a reasoning model of OpenAI reasons least. Without one, it reasons as usual. `None` if
/// none is known to be accepted.
pub(super) fn lowest_effort(model: &ModelInfo) -> Option<&'static str> {
    let id = model.id.rsplit('/').next().unwrap_or_default();
    match id.strip_prefix("gpt-").map(version) {
        Some(number) if (5, 1) <= number => Some("none"),
        Some((5, _)) => Some("minimal"),
        _ => None,
    }
}

/// Whether a model of Google requires the signature of each thought before a call: Gemini 3 and later. Aggregators, whose
/// ids have a `/`, keep them in the details of the reasoning.
pub(super) fn needs_signatures(model: &ModelInfo) -> bool {
    let id = model.id.to_ascii_lowercase();
    let version_of = id.split_once("gemini-").map(|(_, rest)| version(rest));
    !id.contains('/') && version_of.is_some_and(|number| (3, 0) <= number)
}

/// Whether an Anthropic model chooses the amount of its reasoning itself and takes an effort instead of a budget.
pub(super) fn is_adaptive(model: &ModelInfo) -> bool {
    let id = model.id.to_ascii_lowercase();
    id.split_once("claude").is_some_and(|(_, rest)| version(rest) >= (4, 6))
}

/// Returns the first number and the one directly after it, such as `4-6` or `5.2`. A date is no number of a version.
fn version(text: &str) -> (u32, u32) {
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let number = |word: &str| word.parse().ok().filter(|number| *number < 100);
    let major = words.find_map(number).unwrap_or_default();
    (major, words.next().and_then(number).unwrap_or_default())
}

/// Parameter of chat completions that switches thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThinkingFormat {
    /// `reasoning_effort`.
    OpenAi,
    /// `reasoning: {effort}`.
    OpenRouter,
    /// `thinking: {type}`, and `reasoning_effort` if it is on.
    DeepSeek,
    /// `reasoning: {enabled}`, and `reasoning_effort` if it is on.
    Together,
    /// `thinking: {type}`.
    Zai,
    /// `enable_thinking`.
    Qwen,
    /// `chat_template_kwargs: {enable_thinking}`.
    QwenTemplate,
}

/// Differences of a server of chat completions or responses, decided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quirks {
    pub(super) store: bool,
    pub(super) developer_role: bool,
    pub(super) reasoning_effort: bool,
    pub(super) usage_in_stream: bool,
    pub(super) max_completion_tokens: bool,
    pub(super) tool_result_name: bool,
    pub(super) assistant_after_tool_result: bool,
    pub(super) thinking_as_text: bool,
    pub(super) thinking_format: ThinkingFormat,
    /// Whether each message with calls must have its reasoning, even if that is empty.
    pub(super) reasoning_content: bool,
    /// Whether the server is one of OpenAI's.
    pub(super) is_openai: bool,
    /// Call ids of exactly 9 letters and digits.
    pub(super) mistral_ids: bool,
    /// Marks for the cache of Anthropic, in chat completions.
    pub(super) cache_marks: bool,
}

/// Beginnings of the names of Mistral's models.
const MISTRAL_MODELS: [&str; 7] =
    ["mistral", "mixtral", "devstral", "codestral", "magistral", "ministral", "pixtral"];

impl Quirks {
    pub(super) fn of(model: &ModelInfo) -> Self {
        let host = host(&model.base_url);
        let is_at = |domain: &str| {
            host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };

        let id = model.id.rsplit('/').next().unwrap_or_default();
        let is_openai = is_at("openai.com") || is_at("azure.com");
        let is_openai_model =
            ["gpt-5", "o1", "o3", "o4"].iter().any(|family| id.starts_with(family));

        let is_grok = is_at("x.ai");
        let is_mistral = is_at("mistral.ai");
        // Behind a gateway or on a server of the user, the model's own template asks for the same.
        let is_mistral_model = is_mistral
            || model.provider == "mistral"
            || MISTRAL_MODELS.iter().any(|name| id.to_ascii_lowercase().starts_with(name));
        let is_deepseek = is_at("deepseek.com") || model.provider == "deepseek";
        let is_zai = is_at("z.ai") || is_at("bigmodel.cn");

        let compat = &model.compat;
        let format = match compat.thinking_format.as_deref() {
            Some("openrouter") => ThinkingFormat::OpenRouter,
            Some("deepseek") => ThinkingFormat::DeepSeek,
            Some("together") => ThinkingFormat::Together,
            Some("zai") => ThinkingFormat::Zai,
            Some("qwen") => ThinkingFormat::Qwen,
            Some("qwen-chat-template") => ThinkingFormat::QwenTemplate,
            None if is_zai => ThinkingFormat::Zai,
            // It thinks by default: <https://api-docs.deepseek.com/guides/thinking_mode>.
            None if is_deepseek => ThinkingFormat::DeepSeek,
            _ => ThinkingFormat::OpenAi,
        };

        let field = compat.max_tokens_field.as_deref();
        Self {
            store: compat.supports_store.unwrap_or(is_openai),
            developer_role: compat.supports_developer_role.unwrap_or(is_openai),
            reasoning_effort: compat.supports_reasoning_effort.unwrap_or(!is_grok),
            usage_in_stream: compat.supports_usage_in_streaming.unwrap_or(true),
            max_completion_tokens: field
                .map_or(is_openai || is_openai_model, |field| field == "max_completion_tokens"),
            tool_result_name: compat.requires_tool_result_name.unwrap_or(is_mistral_model),
            assistant_after_tool_result: compat
                .requires_assistant_after_tool_result
                .unwrap_or_default(),
            thinking_as_text: compat.requires_thinking_as_text.unwrap_or(is_mistral),
            thinking_format: format,
            reasoning_content: compat
                .requires_reasoning_content_on_assistant_messages
                .unwrap_or(is_deepseek),
            is_openai: is_at("openai.com"),
            mistral_ids: is_mistral_model,
            cache_marks: compat.cache_control_format.as_deref() == Some("anthropic")
                || is_at("openrouter.ai") && model.id.starts_with("anthropic/"),
        }
    }
}

/// Returns the host of a URL, in lower case.
fn host(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let end = rest.find(['/', ':', '?']).unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default().to_ascii_lowercase()
}
