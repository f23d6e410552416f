//! Facts about well-known families of models, by the prefix of their id. Any other model gets the defaults.

use quackd_protocol::model::{InputKind, ModelApi, ModelCompat, ModelCost, ModelInfo, Price};

/// Tokens of input and output together, if they are not known.
const DEFAULT_WINDOW: u64 = 128_000;

/// Tokens of an answer, if they are not known.
const DEFAULT_MAX_TOKENS: u64 = 16_384;

/// Facts about a family.
struct Family {
    prefix: &'static str,
    /// Provider that makes the models.
    maker: &'static str,
    reasoning: bool,
    image: bool,
    window: u64,
    max_tokens: u64,
    /// Input, output, read from a cache and written to it: US dollars for a million tokens.
    cost: Option<[f64; 4]>,
}

const fn family(
    prefix: &'static str,
    maker: &'static str,
    (reasoning, image): (bool, bool),
    (window, max_tokens): (u64, u64),
    cost: Option<[f64; 4]>,
) -> Family {
    Family { prefix, maker, reasoning, image, window, max_tokens, cost }
}

const UNKNOWN: Option<[f64; 4]> = None;

/// The first prefix that fits applies, so longer ones are first.
static FAMILIES: &[Family] = &[
    family(
        "gpt-4o-mini",
        "openai",
        (false, true),
        (128_000, 16_384),
        Some([0.15, 0.6, 0.075, 0.0]),
    ),
    family("gpt-4o", "openai", (false, true), (128_000, 16_384), Some([2.5, 10.0, 1.25, 0.0])),
    family(
        "gpt-4.1-nano",
        "openai",
        (false, true),
        (1_047_576, 32_768),
        Some([0.1, 0.4, 0.025, 0.0]),
    ),
    family(
        "gpt-4.1-mini",
        "openai",
        (false, true),
        (1_047_576, 32_768),
        Some([0.4, 1.6, 0.1, 0.0]),
    ),
    family("gpt-4.1", "openai", (false, true), (1_047_576, 32_768), Some([2.0, 8.0, 0.5, 0.0])),
    family("gpt-5-nano", "openai", (true, true), (400_000, 128_000), Some([0.05, 0.4, 0.005, 0.0])),
    family("gpt-5-mini", "openai", (true, true), (400_000, 128_000), Some([0.25, 2.0, 0.025, 0.0])),
    family("gpt-5", "openai", (true, true), (400_000, 128_000), UNKNOWN),
    family("o4-mini", "openai", (true, true), (200_000, 100_000), Some([1.1, 4.4, 0.275, 0.0])),
    family("o3", "openai", (true, true), (200_000, 100_000), UNKNOWN),
    family(
        "claude-3-5-haiku",
        "anthropic",
        (false, true),
        (200_000, 8_192),
        Some([0.8, 4.0, 0.08, 1.0]),
    ),
    family(
        "claude-3-7-sonnet",
        "anthropic",
        (true, true),
        (200_000, 64_000),
        Some([3.0, 15.0, 0.3, 3.75]),
    ),
    family(
        "claude-haiku-4-5",
        "anthropic",
        (true, true),
        (200_000, 64_000),
        Some([1.0, 5.0, 0.1, 1.25]),
    ),
    family(
        "claude-sonnet-4",
        "anthropic",
        (true, true),
        (200_000, 64_000),
        Some([3.0, 15.0, 0.3, 3.75]),
    ),
    family("claude-opus-4", "anthropic", (true, true), (200_000, 32_000), UNKNOWN),
    family("gemini-2.5", "google", (true, true), (1_048_576, 65_536), UNKNOWN),
    // For the maker only.
    family("chatgpt", "openai", (false, true), (DEFAULT_WINDOW, DEFAULT_MAX_TOKENS), UNKNOWN),
    family("gpt-4", "openai", (false, false), (DEFAULT_WINDOW, DEFAULT_MAX_TOKENS), UNKNOWN),
    family("claude", "anthropic", (false, true), (200_000, 8_192), UNKNOWN),
    family("gemini", "google", (false, true), (1_048_576, 8_192), UNKNOWN),
    family("grok", "xai", (false, false), (DEFAULT_WINDOW, DEFAULT_MAX_TOKENS), UNKNOWN),
    family("deepseek-", "deepseek", (false, false), (DEFAULT_WINDOW, 8_192), UNKNOWN),
    family("mistral-", "mistral", (false, false), (DEFAULT_WINDOW, DEFAULT_MAX_TOKENS), UNKNOWN),
    family("codestral", "mistral", (false, false), (DEFAULT_WINDOW, DEFAULT_MAX_TOKENS), UNKNOWN),
    family("devstral", "mistral", (false, false), (DEFAULT_WINDOW, DEFAULT_MAX_TOKENS), UNKNOWN),
];

fn of(id: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| id.starts_with(family.prefix))
}

/// Whether this is a reasoning model of OpenAI: `gpt-5` and later, `o1` and later. Chat completions refuse tools for the
/// newer ones.
pub(super) fn is_openai_reasoning(id: &str) -> bool {
    let number = |rest: &str| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..end).and_then(|digits| digits.parse::<u32>().ok())
    };
    let is_gpt = id.strip_prefix("gpt-").and_then(number).is_some_and(|major| 5 <= major);
    is_gpt || id.strip_prefix('o').and_then(number).is_some()
}

/// Returns the provider that makes a model.
pub(super) fn maker(id: &str) -> Option<&'static str> {
    of(id).map(|family| family.maker)
}

/// Creates the description of a model. The facts about its family apply only if the provider made the model.
pub(super) fn describe(provider: &str, id: &str, api: ModelApi, base_url: &str) -> ModelInfo {
    let known = of(id).filter(|family| family.maker == provider);
    let cost = known.and_then(|family| family.cost);
    let price = cost.map_or(Price::Unknown, |[input, output, cache_read, cache_write]| {
        Price::Known(ModelCost { input, output, cache_read, cache_write })
    });
    let input_kinds = match known.is_some_and(|family| family.image) {
        true => vec![InputKind::Text, InputKind::Image],
        false => vec![InputKind::Text],
    };
    ModelInfo {
        id: id.to_owned(),
        name: id.to_owned(),
        api,
        provider: provider.to_owned(),
        base_url: base_url.to_owned(),
        reasoning: known.is_some_and(|family| family.reasoning),
        input: input_kinds,
        price,
        context_window: known.map_or(DEFAULT_WINDOW, |family| family.window),
        max_tokens: known.map_or(DEFAULT_MAX_TOKENS, |family| family.max_tokens),
        compat: ModelCompat::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_applies_and_only_at_the_maker() {
        for (index, family) in FAMILIES.iter().enumerate() {
            let first = FAMILIES.iter().position(|it| family.prefix.starts_with(it.prefix));
            assert_eq!(first, Some(index), "{}", family.prefix);
        }
        let api = ModelApi::OpenAiCompletions;
        let mini = describe("openai", "gpt-4o-mini-2024-07-18", api, "");
        let price = mini.price.cost().map(|cost| cost.input);
        assert_eq!((price, mini.max_tokens, mini.reasoning), (Some(0.15), 16_384, false));
        let other = describe("ollama", "gpt-4o-mini", api, "");
        assert_eq!((other.price, other.context_window), (Price::Unknown, 128_000));
        assert_eq!(other.input, [InputKind::Text]);
        assert_eq!(maker("claude-sonnet-4-5"), Some("anthropic"));
        assert_eq!(maker("qwen3"), None);
        for id in ["gpt-5", "gpt-5.6-sol", "gpt-6-mini", "gpt-10", "o3", "o4-mini"] {
            assert!(is_openai_reasoning(id), "{id}");
        }
        for id in ["gpt-4o", "gpt-4.1", "gpt-oss-120b", "olmo", "o", "chatgpt-4o-latest"] {
            assert!(!is_openai_reasoning(id), "{id}");
        }
    }
}
