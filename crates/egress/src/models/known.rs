//! Facts about well-known families of models, by the prefix of their id, from one file: `known.json`. Any other model
//! gets the defaults.
//!
//! A row has only facts that hold for every model of the prefix at its maker, also for newer ones.
//! Without a fact, the default applies. `checked` is the day on which the row was compared with the
//! maker's documents; `quack models --stale` lists the old ones. The first row whose prefix fits
//! applies, so longer ones are first.

use quackd_protocol::model::{InputKind, ModelApi, ModelCompat, ModelCost, ModelInfo, Price};
use serde::Deserialize;
use std::sync::LazyLock;

/// Default window: tokens of input and output together.
const DEFAULT_WINDOW: u64 = 128_000;

/// Default maximum of tokens of an answer.
const DEFAULT_MAX_TOKENS: u64 = 16_384;

/// A row of the file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KnownFamily {
    /// Beginning of the ids.
    pub prefix: String,
    /// Provider that makes the models.
    pub maker: String,
    /// Day on which the row was checked, such as `2026-11-27`.
    pub checked: String,
    #[serde(default)]
    reasoning: Option<bool>,
    #[serde(default)]
    image: Option<bool>,
    #[serde(default)]
    window: Option<u64>,
    #[serde(default)]
    max_tokens: Option<u64>,
    /// Input, output, read from a cache and written to it: US dollars for a million tokens.
    #[serde(default)]
    price: Option<[f64; 4]>,
}

/// The rows. A test reads the file, so that none is lost.
static FAMILIES: LazyLock<Vec<KnownFamily>> =
    LazyLock::new(|| serde_json::from_str(include_str!("known.json")).unwrap_or_default());

/// Returns the rows, the first of which applies.
#[must_use]
pub fn known_families() -> &'static [KnownFamily] {
    &FAMILIES
}

fn of(id: &str) -> Option<&'static KnownFamily> {
    FAMILIES.iter().find(|family| id.starts_with(&family.prefix))
}

/// Returns whether this is a reasoning model of OpenAI: `gpt-5` and later, `o1` and later. Chat
/// completions refuse tools for the newer ones.
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
    of(id).map(|family| family.maker.as_str())
}

/// Returns whether it is known that the model reasons, or that it does not.
pub(super) fn knows_reasoning(provider: &str, id: &str) -> bool {
    of(id).is_some_and(|family| family.maker == provider && family.reasoning.is_some())
}

/// Creates the description of a model. The facts about its family apply only if the provider made the model.
pub(super) fn describe(provider: &str, id: &str, api: ModelApi, base_url: &str) -> ModelInfo {
    let known = of(id).filter(|family| family.maker == provider);
    let cost = known.and_then(|family| family.price);
    let price = cost.map_or(Price::Unknown, |[input, output, cache_read, cache_write]| {
        Price::Known(ModelCost { input, output, cache_read, cache_write })
    });

    let input_kinds = if known.and_then(|family| family.image) == Some(true) {
        vec![InputKind::Text, InputKind::Image]
    } else {
        vec![InputKind::Text]
    };

    ModelInfo {
        id: id.to_owned(),
        name: id.to_owned(),
        api,
        provider: provider.to_owned(),
        base_url: base_url.to_owned(),
        reasoning: known.and_then(|family| family.reasoning) == Some(true),
        input: input_kinds,
        price,
        context_window: known.and_then(|family| family.window).unwrap_or(DEFAULT_WINDOW),
        max_tokens: known.and_then(|family| family.max_tokens).unwrap_or(DEFAULT_MAX_TOKENS),
        compat: ModelCompat::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_applies_and_only_at_the_maker() {
        let read: Vec<KnownFamily> = serde_json::from_str(include_str!("known.json")).unwrap();
        assert!(!read.is_empty());
        for (index, family) in FAMILIES.iter().enumerate() {
            let first = FAMILIES.iter().position(|it| family.prefix.starts_with(&it.prefix));
            assert_eq!(first, Some(index), "{}", family.prefix);
            let digits = family.checked.split('-').map(str::len).collect::<Vec<_>>();
            assert_eq!(digits, [4, 2, 2], "{}", family.checked);
        }
        let api = ModelApi::OpenAiCompletions;
        let mini = describe("openai", "gpt-4o-mini-2024-07-18", api, "");
        let price = mini.price.cost().map(|cost| cost.input);
        assert_eq!((price, mini.max_tokens, mini.reasoning), (Some(0.15), 16_384, false));
        let other = describe("ollama", "gpt-4o-mini", api, "");
        assert_eq!((other.price, other.context_window), (Price::Unknown, 128_000));
        assert_eq!(other.input, [InputKind::Text]);
        // Newer models than any row: no level is lost, and no limit is too small.
        for (provider, id) in [
            ("anthropic", "claude-opus-5-5"),
            ("google", "gemini-3.8-flash"),
            ("deepseek", "deepseek-v4-pro"),
            ("xai", "grok-4.5"),
        ] {
            let newer = describe(provider, id, api, "");
            assert!(newer.reasoning, "{id}");
            assert_eq!((newer.max_tokens, newer.price), (16_384, Price::Unknown), "{id}");
            assert!(128_000 <= newer.context_window, "{id}");
        }
        assert!(!knows_reasoning("mistral", "mistral-next") && !knows_reasoning("x", "grok-4.5"));
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
