//! Reads the JSON of providers and of models, leniently where that cannot change the calls that run.

use crate::surrogates::without_lone_surrogates;
use serde_json::{Map, Value};

/// Parses one record. Removes escapes of lone surrogates, which some servers send when they cut a text between two
/// UTF-16 units. Returns `None` if the text is not JSON.
pub(super) fn parse(text: &str) -> Option<Value> {
    let parsed = serde_json::from_str(text).ok();
    parsed.or_else(|| serde_json::from_str(&without_lone_surrogates(text, "")?).ok())
}

/// Returns the string at a JSON pointer, or an empty one.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the count at a JSON pointer. `None` if it is missing, null or negative.
pub(super) fn count(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer).and_then(Value::as_u64)
}

/// Reads the arguments of a call, and returns the reason if they must not be used. No text at all means no arguments.
/// Text that is not a JSON object gives as much of an object as its beginning contains.
pub(super) fn arguments(text: &str) -> (Map<String, Value>, Option<String>) {
    if text.trim().is_empty() {
        return (Map::new(), None);
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => (arguments, None),
        Ok(_) => (Map::new(), Some("the arguments are not a JSON object".to_owned())),
        Err(error) => (beginning(text), Some(format!("the arguments are not valid JSON: {error}"))),
    }
}

/// Closes every open string and bracket of an incomplete object. If that gives no JSON, drops the last member.
fn beginning(text: &str) -> Map<String, Value> {
    let mut closers = Vec::new();
    let (mut in_string, mut is_escaped) = (false, false);
    // End of the last complete member. No bracket opens or closes after it, so `closers` fits both attempts.
    let mut complete = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                closers.push(if byte == b'{' { '}' } else { ']' });
                complete = at + 1;
            }
            b'}' | b']' => {
                closers.pop();
                complete = at + 1;
            }
            b',' => complete = at,
            _ => {}
        }
    }
    let closers: String = closers.into_iter().rev().collect();
    let quote = if in_string { "\"" } else { "" };
    let whole = text.get(..text.len() - usize::from(is_escaped)).unwrap_or_default();
    let shorter = text.get(..complete).unwrap_or_default();
    let attempts = [format!("{whole}{quote}{closers}"), format!("{shorter}{closers}")];
    attempts.iter().find_map(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{arguments, parse};
    use serde_json::{Value, json};

    #[test]
    fn lone_surrogates_are_removed_and_pairs_stay() {
        assert_eq!(parse(r#"["a\ud83eb\ud83e\udd86\\ud83e\udd86"]"#), Some(json!(["ab🦆\\ud83e"])));
        assert_eq!(parse(r#"["\ud83e"#), None);
        assert_eq!(parse("{"), None);
    }

    #[test]
    fn arguments_are_shown_leniently_and_run_only_if_they_are_an_object() {
        let cases = [
            ("", json!({}), true),
            (" \n", json!({}), true),
            (r#"{"a":{"b":[1]}}"#, json!({"a": {"b": [1]}}), true),
            (r#"{"path":"/tmp/na"#, json!({"path": "/tmp/na"}), false),
            (r#"{"path":"a\"#, json!({"path": "a"}), false),
            (r#"{"a":1,"path"#, json!({"a": 1}), false),
            (r#"{"a":1,"b":{"c":"#, json!({"a": 1, "b": {}}), false),
            (r#"{"a":[1,2,tr"#, json!({"a": [1, 2]}), false),
            (r#"{"a":1}}"#, json!({}), false),
            (r#"[1]"#, json!({}), false),
            ("null", json!({}), false),
            ("no", json!({}), false),
        ];
        for (text, shown, runs) in cases {
            let (arguments, invalid) = arguments(text);
            assert_eq!((Value::Object(arguments), invalid.is_none()), (shown, runs), "{text}");
        }
        assert!(arguments(&"[".repeat(1 << 20)).1.is_some());
    }
}
