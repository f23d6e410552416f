//! Reads the JSON of providers and of models, leniently where that cannot change the calls that run.

use crate::surrogates::{joined, with_halves};
use quackd_protocol::surrogates;
use serde_json::{Map, Value};

/// Names of the members whose text a server may cut between two UTF-16 units, because the next record continues it.
const TEXTS: [&str; 12] = [
    "content",
    "text",
    "reasoning_content",
    "reasoning",
    "reasoning_text",
    "refusal",
    "arguments",
    "delta",
    "thinking",
    "partial_json",
    "summary",
    "data",
];

/// Parses JSON. Lone surrogates become [`char::REPLACEMENT_CHARACTER`]. Returns `None` if the text is not JSON.
pub(super) fn parse(text: &str) -> Option<Value> {
    from_str(text).ok()
}

fn from_str(text: &str) -> serde_json::Result<Value> {
    surrogates::parse(text.as_bytes())
}

/// Parses one record, and returns whether its [`TEXTS`] may contain halves of characters. Returns `None` if the text is not
/// JSON.
pub(super) fn record(text: &str) -> Option<(Value, bool)> {
    if let Ok(value) = serde_json::from_str(text) {
        return Some((value, false));
    }
    let Some(halves) = with_halves(text) else { return Some((parse(text)?, false)) };
    let mut value = serde_json::from_str(&halves).ok()?;
    join_others(&mut value, false);
    Some((value, true))
}

/// Joins the halves in all strings but [`TEXTS`]. Keys stay as they are: no reader has one with a half.
fn join_others(value: &mut Value, is_text: bool) {
    match value {
        Value::String(text) if !is_text => *text = joined(text),
        Value::Array(items) => items.iter_mut().for_each(|item| join_others(item, is_text)),
        Value::Object(members) => {
            let is_text = |name: &str| TEXTS.contains(&name);
            members.iter_mut().for_each(|(name, value)| join_others(value, is_text(name)));
        }
        _ => {}
    }
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

    match from_str(text) {
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

    // A backslash at the end would escape the closing quote.
    let whole = text.get(..text.len() - usize::from(is_escaped)).unwrap_or_default();
    let shorter = text.get(..complete).unwrap_or_default();
    let attempts = [format!("{whole}{quote}{closers}"), format!("{shorter}{closers}")];

    let object = |text: &String| match parse(text) {
        Some(Value::Object(object)) => Some(object),
        _ => None,
    };
    attempts.iter().find_map(object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{arguments, parse, record};
    use serde_json::{Value, json};

    #[test]
    fn lone_surrogates_are_replaced_and_pairs_stay() {
        assert_eq!(
            parse(r#"["a\ud83eb\ud83e\udd86\\ud83e\udd86"]"#),
            Some(json!(["a\u{fffd}b🦆\\ud83e\u{fffd}"]))
        );
        assert_eq!(parse(r#"["\ud83e"#), None);
        assert_eq!(parse("{"), None);
    }

    #[test]
    fn only_texts_keep_halves() {
        let (value, has_halves) = record(r#"{"id":"a\ud83e","text":"a\ud83e"}"#).unwrap();
        assert!(has_halves);
        assert_eq!(value["id"], "a\u{fffd}");
        assert_eq!(value["text"], "a\u{10f83e}");
        assert_eq!(record(r#"{"id":"a"}"#), Some((json!({"id": "a"}), false)));
        let private = "[\"\\ud83e\u{10f83e}\"]";
        assert_eq!(record(private), Some((json!(["\u{fffd}\u{10f83e}"]), false)));
        assert_eq!(record(r#"["\ud83e"#), None);
    }

    #[test]
    fn arguments_are_shown_leniently_and_run_only_if_they_are_an_object() {
        let cases = [
            ("", json!({}), true),
            (" \n", json!({}), true),
            (r#"{"a":{"b":[1]}}"#, json!({"a": {"b": [1]}}), true),
            (r#"{"a":"\ud83e"}"#, json!({"a": "\u{fffd}"}), true),
            (r#"{"a":"x\ud83e"#, json!({"a": "x\u{fffd}"}), false),
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
