//! Keys of Pi's `models.json` and `settings.json` that quackd does not use, so that no named setting is ignored in silence.

use super::json;
use quackd_protocol::foreign_text::stripped_line;
use serde_json::{Map, Value};
use std::path::Path;

/// Maximum number of keys of one file that are listed.
const MAX_LISTED: usize = 64;

/// Maximum length of the part of a key that is listed, in characters.
const MAX_PART: usize = 60;

const OF_PROVIDER: &[&str] =
    &["baseUrl", "api", "apiKey", "headers", "authHeader", "compat", "models", "modelOverrides"];
const OF_MODEL: &[&str] = &[
    "id",
    "api",
    "baseUrl",
    "headers",
    "name",
    "reasoning",
    "input",
    "cost",
    "contextWindow",
    "maxTokens",
    "compat",
];
/// Of `modelOverrides`: their key is the id, and address and API stay.
const OF_OVERRIDE: &[&str] =
    &["name", "reasoning", "input", "cost", "contextWindow", "maxTokens", "compat"];
const OF_COST: &[&str] = &["input", "output", "cacheRead", "cacheWrite"];
const OF_COMPAT: &[&str] = &[
    "supportsStore",
    "supportsDeveloperRole",
    "supportsReasoningEffort",
    "supportsUsageInStreaming",
    "maxTokensField",
    "requiresToolResultName",
    "requiresAssistantAfterToolResult",
    "requiresThinkingAsText",
    "requiresReasoningContentOnAssistantMessages",
    "thinkingFormat",
    "cacheControlFormat",
];
/// Keys of `compat` with the values that quackd knows.
const CHOICES: &[(&str, &[&str])] = &[
    ("maxTokensField", &["max_tokens", "max_completion_tokens"]),
    (
        "thinkingFormat",
        &["openai", "openrouter", "deepseek", "together", "zai", "qwen", "qwen-chat-template"],
    ),
    ("cacheControlFormat", &["anthropic"]),
];
/// Sections of `settings.json` with their keys; see `supervisor/src/session/agent/native/launch.rs`.
const OF_SETTINGS: &[(&str, &[&str])] = &[
    ("retry", &["enabled", "maxRetries", "baseDelayMs", "maxDelayMs"]),
    ("compaction", &["enabled", "reserveTokens", "keepRecentTokens"]),
];

/// Returns one line for each file in Pi's directory with such keys. A file that cannot be read has none: its reader reports
/// it.
pub(super) fn problems_blocking(directory: &Path) -> Vec<String> {
    let files =
        [("models.json", of_models as fn(&Value) -> Vec<String>), ("settings.json", of_settings)];

    let line = |(name, of): (&str, fn(&Value) -> Vec<String>)| {
        let path = directory.join(name);
        let file: Value = json::read_blocking(&path).ok()??;
        let mut keys = of(&file);
        let more = keys.len().saturating_sub(MAX_LISTED);
        keys.truncate(MAX_LISTED);
        if more != 0 {
            keys.push(format!("{more} more"));
        }
        let keys = Some(keys).filter(|keys| !keys.is_empty())?.join(", ");
        Some(format!("{}: quackd does not use {keys}", path.display()))
    };

    files.into_iter().filter_map(line).collect()
}

/// Keys that were found so far.
#[derive(Default)]
struct UnusedKeys(Vec<String>);

impl UnusedKeys {
    /// Adds the members of an object that are not known. Comments are no settings.
    fn unknown(&mut self, at: &str, object: &Map<String, Value>, known: &[&str]) {
        let unknown = object.keys().filter(|key| !known.contains(&key.as_str()));
        let unknown = unknown.filter(|key| *key != "$schema" && !key.starts_with("//"));
        self.0.extend(unknown.map(|key| joined(at, key)));
    }

    /// Adds what is unknown of a model or a provider.
    fn facts(&mut self, at: &str, facts: &Map<String, Value>, known: &[&str]) {
        self.unknown(at, facts, known);
        if let Some(cost) = facts.get("cost").and_then(Value::as_object) {
            self.unknown(&joined(at, "cost"), cost, OF_COST);
        }

        let Some(compat) = facts.get("compat").and_then(Value::as_object) else { return };
        let at = joined(at, "compat");
        self.unknown(&at, compat, OF_COMPAT);
        for (key, choices) in CHOICES {
            let value = compat.get(*key).filter(|value| !value.is_null());
            if let Some(value) = value
                && !value.as_str().is_some_and(|value| choices.contains(&value))
            {
                self.0.push(format!("{} = {}", joined(&at, key), short(&value.to_string())));
            }
        }
    }
}

fn of_models(file: &Value) -> Vec<String> {
    let mut keys = UnusedKeys::default();
    let Some(file) = file.as_object() else { return keys.0 };
    keys.unknown("", file, &["providers"]);

    let providers = file.get("providers").and_then(Value::as_object);
    for (name, provider) in providers.into_iter().flatten() {
        let at = joined("providers", name);
        let Some(provider) = provider.as_object() else { continue };
        keys.facts(&at, provider, OF_PROVIDER);

        let models = provider.get("models").and_then(Value::as_array);
        for model in models.into_iter().flatten().filter_map(Value::as_object) {
            let id = model.get("id").and_then(Value::as_str).unwrap_or_default();
            keys.facts(&format!("{at}.models[{}]", short(id)), model, OF_MODEL);
        }

        let overrides = provider.get("modelOverrides").and_then(Value::as_object);
        for (id, facts) in overrides.into_iter().flatten() {
            if let Some(facts) = facts.as_object() {
                keys.facts(&format!("{at}.modelOverrides[{}]", short(id)), facts, OF_OVERRIDE);
            }
        }
    }

    keys.0
}

fn of_settings(file: &Value) -> Vec<String> {
    let mut keys = UnusedKeys::default();
    let Some(file) = file.as_object() else { return keys.0 };
    let sections: Vec<&str> = OF_SETTINGS.iter().map(|(name, _)| *name).collect();
    keys.unknown("", file, &sections);
    for (name, known) in OF_SETTINGS {
        if let Some(section) = file.get(*name).and_then(Value::as_object) {
            keys.unknown(name, section, known);
        }
    }
    keys.0
}

fn joined(at: &str, key: &str) -> String {
    if at.is_empty() { short(key) } else { format!("{at}.{}", short(key)) }
}

/// Returns a name of the file for display.
fn short(name: &str) -> String {
    stripped_line(name, MAX_PART)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_key_that_is_not_used_is_listed_with_its_path() {
        let compat = json!({"thinkingFormat": "ant-ling", "maxTokensField": "max_tokens", "zaiToolStream": true,
            "openRouterRouting": {"only": ["x"]}});
        let model = json!({"id": "m", "thinkingLevelMap": {"off": null}, "cost": {"input": 1, "tiers": []},
            "compat": compat});
        let file = json!({"$schema": "s", "other": 1, "providers": {"p": {"baseUrl": "u", "name": "P",
            "headers": {"x": "y"}, "models": [model], "modelOverrides": {"n": {"baseUrl": "v"}}}}});
        let expected = [
            "other",
            "providers.p.name",
            "providers.p.models[m].thinkingLevelMap",
            "providers.p.models[m].cost.tiers",
            "providers.p.models[m].compat.openRouterRouting",
            "providers.p.models[m].compat.zaiToolStream",
            "providers.p.models[m].compat.thinkingFormat = \"ant-ling\"",
            "providers.p.modelOverrides[n].baseUrl",
        ];
        assert_eq!(of_models(&file), expected);
        let settings =
            json!({"theme": "dark", "retry": {"enabled": true, "provider": {}}, "compaction": {}});
        assert_eq!(of_settings(&settings), ["theme", "retry.provider"]);
        assert_eq!((of_models(&json!([])), of_settings(&json!(1))), (Vec::new(), Vec::new()));
    }

    #[test]
    fn the_list_is_bounded_and_names_the_file() {
        let directory = tempfile::tempdir().unwrap();
        assert!(problems_blocking(directory.path()).is_empty());
        let many: Map<String, Value> =
            (0..100).map(|n| (format!("k{n}\u{1b}{}", "x".repeat(99)), Value::Null)).collect();
        std::fs::write(directory.path().join("settings.json"), Value::from(many).to_string())
            .unwrap();
        std::fs::write(directory.path().join("models.json"), "not JSON").unwrap();
        let [line] = &*problems_blocking(directory.path()) else { panic!("one line") };
        assert!(
            line.contains("settings.json: quackd does not use k0") && line.ends_with(", 36 more")
        );
        assert!(!line.contains('\u{1b}') && line.len() < MAX_LISTED * (MAX_PART + 2) + 200);
    }
}
