//! Escapes JSON before it is printed: control characters, invisible characters and direction marks become `\uXXXX`. The
//! values stay the same. Used by [`crate::output`] for all `--json` output.

use quackd_protocol::foreign_text::is_unsafe;
use std::borrow::Cow;
use std::fmt::Write;

/// Returns `json` with these characters escaped. They occur in strings only, because JSON allows them nowhere else.
pub(crate) fn visible(json: &str) -> Cow<'_, str> {
    if !json.contains(is_escaped) {
        return Cow::Borrowed(json);
    }

    let mut out = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if is_escaped(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                write!(out, "\\u{unit:04x}").ok();
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Whether a character is escaped: DEL, C1 controls, invisible characters and format characters. serde_json escapes C0
/// controls in strings; outside of strings they are line ends.
fn is_escaped(c: char) -> bool {
    '\u{7f}' <= c && (is_unsafe(c) || is_format(c))
}

/// Visible format characters that are rendered together with their neighbors. Only JSON escapes them, because the
/// escape keeps the value.
fn is_format(c: char) -> bool {
    matches!(c,
        '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}'
        | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn what_a_terminal_obeys_or_hides_is_escaped_and_the_rest_is_as_it_was() {
        let odd = "\u{7f}\u{80}\u{9b}\u{9f}\u{ad}\u{61c}\u{200b}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\
            \u{2060}\u{2066}\u{2069}\u{206f}\u{fe0f}\u{feff}\u{fff9}\u{e0041}\u{e0100}\u{600}\u{1d173}";
        let value = json!({ odd: [odd, "x\u{1b}\n"], "漢é": "👩\u{200d}💻" });
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let shown = visible(&text);
            assert!(!shown.contains(|c| odd.contains(c)), "{shown}");
            assert!(shown.contains("\\u009b") && shown.contains("\\udb40\\udc41"), "{shown}");
            assert!(shown.contains("漢é") && shown.contains("👩\\u200d💻"), "{shown}");
            assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }
        let plain = "{\n  \"a\": \"é\"\n}\n";
        assert!(matches!(visible(plain), Cow::Borrowed(same) if same == plain));
    }

    proptest! {
        #[test]
        fn the_value_is_the_same(key in any::<String>(), text in any::<String>()) {
            let value = json!({ key: text });
            let shown = visible(&value.to_string()).into_owned();
            prop_assert!(!shown.contains(is_escaped));
            prop_assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }
    }
}
