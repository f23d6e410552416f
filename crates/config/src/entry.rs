//! A key with its value and origin as it is shown: by `quack config show`, and by the daemon.

use serde_json::Value as Json;

/// A key with its value and origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name from the file's root.
    pub key: &'static str,
    /// As the file would have it.
    pub value: Json,
    /// `default`, `/path:line`, or the name of a variable or flag.
    pub origin: String,
}

impl Entry {
    /// The entry as one line of the file, without its end: all entries together are a file that says
    /// the same again.
    #[must_use]
    pub fn to_toml(&self) -> String {
        format!("{} = {}", self.key, to_toml(&self.value))
    }
}

/// A value as TOML. Texts have no control characters, and what JSON escapes besides, TOML escapes alike.
pub(crate) fn to_toml(value: &Json) -> String {
    match value {
        Json::Array(words) => {
            let words: Vec<String> = words.iter().map(to_toml).collect();
            format!("[{}]", words.join(", "))
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
        let line = |value| Entry { key: "a.b", value, origin: String::new() }.to_toml();
        assert_eq!(
            [line(json!(30)), line(json!(true)), line(json!([])), line(json!(["a\"\\", "ä"]))],
            ["a.b = 30", "a.b = true", "a.b = []", "a.b = [\"a\\\"\\\\\", \"ä\"]"]
        );
    }
}
