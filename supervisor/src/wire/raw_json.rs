//! Checks raw JSON that workers send and that the supervisor forwards to clients. Parsing into a `RawValue` checks only
//! the grammar: it accepts lone surrogates, numbers out of range and unlimited nesting. A client would reject the whole
//! line that contains them.

use quackd_protocol::surrogates::without_lone_surrogates;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Maximum nesting of a worker's value. serde_json stops at 128; replies and events add some levels.
const MAX_DEPTH: u8 = 100;

/// Returns whether every JSON parser accepts this value. Reads it once, because every result of a
/// tool passes here.
pub(crate) fn is_sound(json: &RawValue) -> bool {
    let text = json.get();

    let (mut at, mut depth) = (0, 0_u8);
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            // Brackets in a string do not nest.
            b'"' => at = end_of_string(text, at + 1),
            b'-' | b'0'..=b'9' => match end_of_number(text, at) {
                Some(end) => {
                    at = end;
                    continue;
                }
                None => return false,
            },
            b'[' | b'{' if depth == MAX_DEPTH => return false,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }

    // Most results have no such escape at all, and this search is faster.
    memchr::memmem::find(text.as_bytes(), b"\\u").is_none()
        || matches!(without_lone_surrogates(text), Cow::Borrowed(_))
}

/// Returns whether a value has no line end, so that it can be a part of a line.
pub(crate) fn is_one_line(json: &RawValue) -> bool {
    memchr::memchr2(b'\n', b'\r', json.get().as_bytes()).is_none()
}

/// Returns the position of the quotation mark that ends a string.
fn end_of_string(json: &str, mut from: usize) -> usize {
    loop {
        let rest = json.as_bytes().get(from..).unwrap_or_default();
        match memchr::memchr2(b'"', b'\\', rest) {
            Some(at) if rest.get(at) == Some(&b'"') => return from + at,
            // The backslash and the character after it, which may be a quotation mark.
            Some(at) => from += at + 2,
            // The grammar has no string without an end.
            None => return json.len(),
        }
    }
}

/// Returns the position after the number that begins at a position. `None` if the number is out of the range of the
/// usual type, which has a greatest exponent of 308.
fn end_of_number(json: &str, from: usize) -> Option<usize> {
    let (mut end, mut has_exponent) = (from, false);
    while let Some(byte) = json.as_bytes().get(end) {
        match byte {
            b'0'..=b'9' | b'-' | b'+' | b'.' => {}
            b'e' | b'E' => has_exponent = true,
            _ => break,
        }
        end += 1;
    }

    // A number of at most 300 digits without an exponent is below 1e308, so it need not be parsed.
    let is_small = end - from <= 300 && !has_exponent;
    let is_finite = || json.get(from..end)?.parse().ok().filter(|number: &f64| number.is_finite());
    (is_small || is_finite().is_some()).then_some(end)
}

/// Replaces each lone surrogate with `\ufffd`. JavaScript programs write lone surrogates when they split a text between
/// two UTF-16 units.
pub(crate) fn with_whole_characters(json: Box<RawValue>) -> Box<RawValue> {
    match without_lone_surrogates(json.get()) {
        Cow::Borrowed(_) => json,
        // The replaced text is JSON too, so the conversion does not fail.
        Cow::Owned(text) => RawValue::from_string(text).unwrap_or(json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn what_every_reader_reads_is_sound_and_the_rest_is_not() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        for json in [
            r#""x\ud83e\udd86\\ud800""#,
            r#"{"a":[null,true,-1,18446744073709551615,1.5e300,{"b":{}}],"é":""}"#,
            r#"[ "1e999", "]]\\\"[[1e999", 1E-999 , -0.0e+5,"\\\\" ]"#,
            &"9".repeat(308),
            &format!("[{}0]", "[0],".repeat(200)),
            &nested(100),
        ] {
            assert!(is_sound(&raw(json)), "{json:.60}");
            serde_json::from_str::<Value>(json).unwrap();
        }
        for json in [
            r#""\ud800""#,
            r#""\udc00\ud800""#,
            r#"{"\ud800":1}"#,
            r#"[{"a":"\ud83dx"}]"#,
            "1e999",
            "[-1e999]",
            r#"{"a":"1","b":1E+999}"#,
            &"9".repeat(400),
            &nested(101),
            &nested(100_000),
        ] {
            assert!(!is_sound(&raw(json)), "{json:.60}");
        }
    }

    #[test]
    fn a_half_of_a_character_is_replaced_and_a_whole_one_is_not() {
        for (json, expected) in [
            (r#"{"a":"x\ud83e"}"#, r#"{"a":"x\ufffd"}"#),
            (r#""\udd86\ud83e\udd86\ud83e""#, r#""\ufffd\ud83e\udd86\ufffd""#),
            (r#""\ud83e\ud83e\udd86""#, r#""\ufffd\ud83e\udd86""#),
            (r#"{"\uD800":"\\ud800\"\u00e9"}"#, r#"{"\ufffd":"\\ud800\"\u00e9"}"#),
            ("[1]", "[1]"),
        ] {
            let whole = with_whole_characters(raw(json));
            assert_eq!(whole.get(), expected);
            assert!(is_sound(&whole), "{json}");
        }
    }
}
