//! A key with its value and origin, as shown by `quack config show` and by the daemon.

use serde_json::Value as Json;
use std::borrow::Cow;

/// A key with its value and origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name of the key, from the root of the file.
    pub key: Cow<'static, str>,
    /// The value in the notation of the file.
    pub value: Json,
    /// `default`, `/path:line`, or the name of a variable or flag.
    pub origin: String,
}

impl Entry {
    /// Returns the entry as one line of the file, without a line end. All entries together form a file with the same
    /// settings.
    #[must_use]
    pub fn to_toml(&self) -> String {
        format!("{} = {}", self.key, to_toml(&self.value))
    }
}

/// Formats a value as TOML. Texts contain no control characters, and JSON and TOML escape the rest alike.
pub(crate) fn to_toml(value: &Json) -> String {
    match value {
        Json::Array(words) => {
            let words: Vec<String> = words.iter().map(to_toml).collect();
            format!("[{}]", words.join(", "))
        }
        Json::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| format!("{key} = {}", to_toml(value)));
            let entries: Vec<String> = entries.collect();
            format!("{{ {} }}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_entry_is_a_line_of_the_file() {
        let line = |value| Entry { key: "a.b".into(), value, origin: String::new() }.to_toml();
        assert_eq!(
            [line(json!(30)), line(json!(true)), line(json!([])), line(json!(["a\"\\", "ä"]))],
            ["a.b = 30", "a.b = true", "a.b = []", "a.b = [\"a\\\"\\\\\", \"ä\"]"]
        );
    }
}
