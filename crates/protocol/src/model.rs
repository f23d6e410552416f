//! Models and requests to their providers, as the supervisor and the agent worker exchange them.
//!
//! The agent worker has neither a key nor a network. It sends a [`ModelRequest`] without a key. The supervisor's egress
//! adds the key, sends the request to the configured endpoint of the provider, and returns the answer in pieces.

use crate::output::OutputPiece;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Most models in the list of one agent.
pub const MAX_MODELS: usize = 512;

/// Most bytes of a request's body.
pub const MAX_MODEL_REQUEST_BYTES: usize = 6 * 1024 * 1024;

/// Most bytes of the body of an answer with an error status. Further bytes are not read.
pub const MAX_MODEL_ERROR_BYTES: usize = 16 * 1024;

/// Pieces of one answer that the agent has not taken. Egress reads no more until a piece is taken.
pub const MODEL_PIECES: usize = 8;

/// Requests of one agent at the same time: the turn, and a summary.
pub const MAX_MODEL_REQUESTS: usize = 4;

/// The API of a provider, named as in Pi's `models.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ModelApi {
    /// OpenAI chat completions, also of llama.cpp, Ollama, vLLM, LM Studio and OpenRouter.
    #[serde(rename = "openai-completions")]
    OpenAiCompletions,
    /// OpenAI responses.
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    /// Anthropic messages.
    #[serde(rename = "anthropic-messages")]
    AnthropicMessages,
}

impl ModelApi {
    /// Every API.
    pub const ALL: [Self; 3] =
        [Self::OpenAiCompletions, Self::OpenAiResponses, Self::AnthropicMessages];

    /// Returns the name in files and on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAiCompletions => "openai-completions",
            Self::OpenAiResponses => "openai-responses",
            Self::AnthropicMessages => "anthropic-messages",
        }
    }

    /// Returns the API with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|api| api.name() == name)
    }
}

/// Kind of input that a model accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InputKind {
    /// Text.
    Text,
    /// Images.
    Image,
}

/// Prices in US dollars for a million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelCost {
    /// Input that no cache had.
    pub input: f64,
    /// Output, with reasoning.
    pub output: f64,
    /// Input from a cache.
    pub cache_read: f64,
    /// Input written to a cache.
    pub cache_write: f64,
}

/// Price of a model, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "PriceFields", into = "PriceFields")]
pub enum Price {
    /// The prices of tokens.
    Known(ModelCost),
    /// Nobody is billed: a server of this computer, or a model to which the user gave the price 0.
    Free,
    /// The provider sends the cost with each answer.
    Reported,
    /// Neither.
    Unknown,
}

impl Price {
    /// Returns the price that the user gave.
    #[must_use]
    pub fn given(cost: ModelCost) -> Self {
        let parts = [cost.input, cost.output, cost.cache_read, cost.cache_write];

        if !parts.iter().all(|part| part.is_finite() && 0.0 <= *part) {
            Self::Unknown
        } else if cost == ModelCost::default() {
            Self::Free
        } else {
            Self::Known(cost)
        }
    }

    /// Returns the prices of tokens, if they are known.
    #[must_use]
    pub fn cost(self) -> Option<ModelCost> {
        match self {
            Self::Known(cost) => Some(cost),
            Self::Free => Some(ModelCost::default()),
            Self::Reported | Self::Unknown => None,
        }
    }
}

/// Name of a [`Price`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PriceKind {
    /// `cost` has the prices.
    Known,
    /// There is no charge.
    Free,
    /// The provider sends the cost with each answer.
    Reported,
    /// There is no price. `cost` is zero.
    Unknown,
}

/// The members of a model that contain a [`Price`].
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
pub struct PriceFields {
    /// Prices. Zero if there is none: see `price`.
    #[serde(default)]
    pub cost: ModelCost,
    /// Price, as far as it is known. Absent in models of Pi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<PriceKind>,
}

impl From<PriceFields> for Price {
    fn from(PriceFields { cost, price }: PriceFields) -> Self {
        match price {
            Some(PriceKind::Known) => Self::Known(cost),
            Some(PriceKind::Free) => Self::Free,
            Some(PriceKind::Reported) => Self::Reported,
            None if cost != ModelCost::default() => Self::given(cost),
            Some(PriceKind::Unknown) | None => Self::Unknown,
        }
    }
}

impl From<Price> for PriceFields {
    fn from(price: Price) -> Self {
        let kind = match price {
            Price::Known(_) => PriceKind::Known,
            Price::Free => PriceKind::Free,
            Price::Reported => PriceKind::Reported,
            Price::Unknown => PriceKind::Unknown,
        };
        Self { cost: price.cost().unwrap_or_default(), price: Some(kind) }
    }
}

/// A model, as `get_state` and `get_available_models` show it. Contains no secret: the base URL has neither user nor
/// password nor query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelInfo {
    /// The provider's name of the model.
    pub id: String,
    /// Name for display.
    pub name: String,
    /// How to speak with the provider.
    pub api: ModelApi,
    /// Name of the provider.
    pub provider: String,
    /// Base URL of the provider.
    pub base_url: String,
    /// Whether the model reasons, so that it has thinking levels.
    pub reasoning: bool,
    /// Kinds of input that the model accepts.
    pub input: Vec<InputKind>,
    /// Price of the model.
    #[serde(flatten)]
    #[schemars(with = "PriceFields")]
    pub price: Price,
    /// Most tokens of input and output together.
    pub context_window: u64,
    /// Most tokens of an answer.
    pub max_tokens: u64,
    /// Differences to the usual API.
    #[serde(default, skip_serializing_if = "ModelCompat::is_default")]
    pub compat: ModelCompat,
}

/// Windows below this many tokens are small: prompt and tools of an agent would fill a large part of them.
const SMALL_WINDOW: u64 = 16_384;

impl ModelInfo {
    /// Whether the window is known and small.
    #[must_use]
    pub fn has_small_window(&self) -> bool {
        (1..SMALL_WINDOW).contains(&self.context_window)
    }
}

/// Differences of a server to the usual API, with the names of Pi's `models.json`. `None` means the usual behavior of the
/// API. Unknown members are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelCompat {
    /// Whether the server knows `store`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supports_store: Option<bool>,
    /// Whether a system prompt of a reasoning model has the role `developer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supports_developer_role: Option<bool>,
    /// Whether the server knows `reasoning_effort`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supports_reasoning_effort: Option<bool>,
    /// Whether the server knows `stream_options.include_usage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supports_usage_in_streaming: Option<bool>,
    /// Name of the limit of output: `max_completion_tokens` or `max_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens_field: Option<String>,
    /// Whether a tool result must have the name of its tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires_tool_result_name: Option<bool>,
    /// Whether an assistant message is required between a tool result and a user message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires_assistant_after_tool_result: Option<bool>,
    /// Whether thinking is sent back as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires_thinking_as_text: Option<bool>,
    /// Whether a message with calls must have its reasoning, also if that is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires_reasoning_content_on_assistant_messages: Option<bool>,
    /// Parameter that switches thinking: `openai`, `openrouter`, `deepseek`, `together`, `zai`, `qwen` or
    /// `qwen-chat-template`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_format: Option<String>,
    /// `anthropic`: marks for the cache of Anthropic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_control_format: Option<String>,
}

impl ModelCompat {
    /// Whether nothing differs.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Thinking level of a model that reasons.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ThinkingLevel {
    /// No reasoning.
    #[default]
    Off,
    /// As little as possible.
    Minimal,
    /// Little.
    Low,
    /// The usual amount.
    Medium,
    /// Much.
    High,
    /// As much as possible, for models that know this level.
    Xhigh,
}

impl ThinkingLevel {
    /// Every level, from the lowest.
    pub const ALL: [Self; 6] =
        [Self::Off, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh];

    /// Returns the name in files and on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
        }
    }

    /// Returns the level with this name. `max`, a level of newer Pis, is the highest one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        if name == "max" {
            return Some(Self::Xhigh);
        }
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// A request to a model, without a key and without an address.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModelRequest {
    /// Unique within the agent worker. Counts up from 1.
    pub number: u64,
    /// Name of the provider. Egress knows its endpoint and key.
    pub provider: String,
    /// The API. Egress derives the path of the URL from it.
    pub api: ModelApi,
    /// Id of the model, for accounting.
    pub model: String,
    /// Values of the header `anthropic-beta`. Only words of ASCII letters, digits, `-`, `.` and `_`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub betas: Vec<String>,
    /// The body, at most [`MAX_MODEL_REQUEST_BYTES`].
    pub body: Box<RawValue>,
}

/// The beginning of a provider's answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelHead {
    /// HTTP status.
    pub status: u16,
    /// Time after which the provider wants the request again, in milliseconds: from `retry-after` (seconds or a date),
    /// `x-ratelimit-reset` or `x-ratelimit-reset-after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// `x-should-retry`, by which a provider allows or forbids another attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub should_retry: Option<bool>,
    /// `content-type`, at most 100 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

/// The next part of the answer to a [`ModelRequest`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelPart {
    /// The head. At most one, before the first piece.
    Head(ModelHead),
    /// Bytes of the body. The stream is always `stdout`. Each costs a credit of [`MODEL_PIECES`].
    Piece(OutputPiece),
    /// The body is complete. Last part.
    Done {},
    /// There is no answer, or the rest of it is lost. Last part.
    Failed(ModelFailure),
}

/// Reason why an answer is missing or incomplete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFailure {
    /// Kind of the failure.
    pub kind: ModelFailureKind,
    /// One line for the user, without a key and without more of the URL than its host.
    pub text: String,
}

/// Kind of a [`ModelFailure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelFailureKind {
    /// The provider is not configured, or has no key. Another attempt cannot help.
    NotConfigured,
    /// The request is not one that egress sends. Another attempt cannot help.
    Refused,
    /// No connection. The provider has not received the request.
    NotConnected,
    /// The server's certificate is not valid, or this machine trusts none. Another attempt cannot help.
    Untrusted,
    /// The connection ended. The provider may have received the request.
    Broken,
    /// No byte for too long.
    Idle,
    /// Too many requests of this daemon run.
    Busy,
    /// The requests of this day have cost as much as they may.
    Budget,
}

/// Reason for an early end of a run, or for less than an answer: `reason` of `agent_end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Too many requests in one run.
    MaxTurns,
    /// The cost reached its limit, or cannot be known.
    Budget,
    /// The model repeated the same calls.
    Loop,
    /// The answer was cut at a limit of tokens.
    Length,
    /// The answer has neither text nor calls.
    Empty,
    /// The model, or a filter of its provider, refused to answer.
    Refusal,
    /// The server sent something else than an answer of its API, such as a web page.
    NotAnAnswer,
}
