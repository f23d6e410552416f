//! Checks raw JSON that workers send and that the supervisor forwards to clients. Parsing into a `RawValue` checks only
//! the grammar: it accepts lone surrogates, numbers out of range and unlimited nesting. A client would reject the whole
//! line that contains them.

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Maximum nesting of a worker's value. serde_json stops at 128; replies and events add some levels.
const MAX_DEPTH: u8 = 100;

/// Whether every JSON parser accepts this value.
pub(crate) fn is_sound(json: &RawValue) -> bool {
    let mut reader = serde_json::Deserializer::from_str(json.get());
    Sound(MAX_DEPTH).deserialize(&mut reader).is_ok()
}

/// Replaces each lone surrogate with `\ufffd`. JavaScript programs write lone surrogates when they split a text between
/// two UTF-16 units.
pub(crate) fn with_whole_characters(json: Box<RawValue>) -> Box<RawValue> {
    let halves = halves(json.get());
    if halves.is_empty() {
        return json;
    }
    let mut text = json.get().to_owned();
    for at in halves {
        // The replacement has the same length.
        text.replace_range(at..at + ESCAPE, "\\ufffd");
    }
    RawValue::from_string(text).unwrap_or(json)
}

/// Bytes of `\uXXXX`.
const ESCAPE: usize = 6;

/// Byte positions of the escapes of lone surrogates.
fn halves(json: &str) -> Vec<usize> {
    let unit = |at: usize| {
        let digits = json.get(at..at + ESCAPE)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(next) = json.get(from..).and_then(|rest| rest.find('\\')) {
        let at = from + next;
        from = at + 2;
        match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + ESCAPE), Some(0xdc00..=0xdfff)) => {
                from = at + 2 * ESCAPE;
            }
            Some(0xd800..=0xdfff) => found.push(at),
            _ => {}
        }
    }
    found
}

/// Parses a value and discards it. Holds the remaining nesting levels.
struct Sound(u8);

impl Sound {
    fn deeper<E: serde::de::Error>(&self) -> Result<Self, E> {
        self.0.checked_sub(1).map(Self).ok_or_else(|| E::custom("nests too deep"))
    }
}

impl<'de> DeserializeSeed<'de> for Sound {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Sound {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<(), E> {
        if number.is_finite() { Ok(()) } else { Err(E::custom("is no number")) }
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(self.deeper()?)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_key_seed(Self(1))?.is_some() {
            map.next_value_seed(self.deeper()?)?;
        }
        Ok(())
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
