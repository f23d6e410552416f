//! Escapes of lone surrogates in JSON. JavaScript programs write them where they cut a text between two UTF-16 units, and
//! read them. Strings of Rust cannot contain them, so that parsers refuse the whole text.

use serde::de::DeserializeOwned;
use std::borrow::Cow;

/// Bytes of `\uXXXX`.
const ESCAPE: usize = 6;

/// Parses JSON of another program. Lone surrogates become [`char::REPLACEMENT_CHARACTER`].
///
/// # Errors
/// The text is not JSON, or no `T`.
pub fn parse<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    let error = match serde_json::from_slice(json) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };

    match std::str::from_utf8(json).map(without_lone_surrogates) {
        Ok(Cow::Owned(repaired)) => serde_json::from_str(&repaired),
        _ => Err(error),
    }
}

/// Returns JSON text with the escape of each lone surrogate replaced by that of [`char::REPLACEMENT_CHARACTER`].
#[must_use]
pub fn without_lone_surrogates(json: &str) -> Cow<'_, str> {
    let mut repaired = String::new();
    let (mut n_done, mut at) = (0, 0);
    // A backslash occurs only in strings, so this code needs no other knowledge of JSON.
    while let Some(distance) = json.get(at..).and_then(|rest| rest.find('\\')) {
        at += distance;
        match (unit(json, at), unit(json, at + ESCAPE)) {
            // A pair is one valid character.
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => at += 2 * ESCAPE,
            (Some(0xd800..=0xdfff), _) => {
                repaired.push_str(json.get(n_done..at).unwrap_or_default());
                repaired.push_str("\\ufffd");
                at += ESCAPE;
                n_done = at;
            }
            (Some(_), _) => at += ESCAPE,
            // The escaped character has one byte, or this is not JSON, which the parser reports.
            (None, _) => at += 2,
        }
    }

    if n_done == 0 {
        return Cow::Borrowed(json);
    }
    repaired.push_str(json.get(n_done..).unwrap_or_default());
    Cow::Owned(repaired)
}

/// Parses the UTF-16 unit of the escape that begins here.
fn unit(json: &str, at: usize) -> Option<u16> {
    let digits = json.get(at..at + ESCAPE)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn lone_surrogates_are_replaced_and_nothing_else() {
        let same = ["", "x", r#""\ud83e\udd86""#, r#""\\ud83e""#, r#""\n\u00e4\"""#, "\\", "\\u12"];
        for json in same {
            assert!(matches!(without_lone_surrogates(json), Cow::Borrowed(_)), "{json}");
        }
        let cases = [
            (r#""a\ud83e""#, r#""a\ufffd""#),
            (r#""\udd86 b""#, r#""\ufffd b""#),
            (r#""\uD83E\ud83e\udd86""#, r#""\ufffd\ud83e\udd86""#),
            (r#""\\\ud83eä\u0041""#, r#""\\\ufffdä\u0041""#),
            (r#""\ud83e\\udd86""#, r#""\ufffd\\udd86""#),
        ];
        for (json, expected) in cases {
            assert_eq!(without_lone_surrogates(json), expected);
        }
    }

    #[test]
    fn json_with_lone_surrogates_is_read_and_other_errors_stay() {
        let value: Value = parse(br#"{"a\ud83e":["b\udd86c","\ud83e\udd86"]}"#).unwrap();
        assert_eq!(value, json!({"a\u{fffd}": ["b\u{fffd}c", "🦆"]}));
        for wrong in [&b"{"[..], br#"["\ud83e"#, b"\"\xff\"", b"[1,]"] {
            let expected = serde_json::from_slice::<Value>(wrong).unwrap_err().to_string();
            let error = parse::<Value>(wrong).unwrap_err().to_string();
            assert!(error == expected || wrong.len() > 6, "{error}");
        }
    }
}
