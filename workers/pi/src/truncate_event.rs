//! Truncates the long texts of an event that is too large for clients. Used by [`crate::dialect`].

use serde_json::Value;

/// Lengths of truncated texts in bytes, tried in this order.
const LENGTHS: [usize; 5] = [64 * 1024, 16 * 1024, 4 * 1024, 1024, 128];

/// Suffix of a truncated text.
const MARK: &str = "… [cut]";

/// Truncates the long texts of the object `text` so that it has at most `limit` bytes, and adds `"truncated":true`.
/// If that is not possible, returns an object with only its type.
pub(crate) fn shrink(text: &str, kind: &str, limit: usize) -> String {
    if let Ok(Value::Object(mut object)) = serde_json::from_str(text) {
        object.insert("truncated".to_owned(), true.into());
        let mut value = Value::Object(object);
        for length in LENGTHS {
            cut(&mut value, length);
            let text = value.to_string();
            if text.len() <= limit {
                return text;
            }
        }
    }
    serde_json::json!({ "type": kind, "truncated": true }).to_string()
}

/// The recursion is bounded, because the parser limits the depth.
fn cut(value: &mut Value, length: usize) {
    match value {
        Value::String(text) if length < text.len() => {
            text.truncate(text.floor_char_boundary(length));
            text.push_str(MARK);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| cut(item, length)),
        Value::Object(members) => members.values_mut().for_each(|member| cut(member, length)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_and_short_ones_stay() {
        let text = format!(r#"{{"type":"x","a":["{}"],"b":"short"}}"#, "é".repeat(100_000));
        let small = shrink(&text, "x", 20_000);
        assert!(small.len() <= 20_000, "{}", small.len());
        let value: Value = serde_json::from_str(&small).unwrap();
        assert_eq!((&value["b"], &value["truncated"]), (&"short".into(), &true.into()));
        assert!(value["a"][0].as_str().unwrap().ends_with("é… [cut]"));
    }

    #[test]
    fn what_stays_too_long_is_told_by_its_type_only() {
        let numbers = format!(r#"{{"type":"x","a":{:?}}}"#, vec![1; 10_000]);
        let least = r#"{"truncated":true,"type":"x"}"#;
        let same = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(same(&shrink(&numbers, "x", 1000)), same(least));
        let deep = format!(r#"{{"type":"x","a":{}1{}}}"#, "[".repeat(500), "]".repeat(500));
        assert_eq!(same(&shrink(&deep, "x", 100)), same(least));
    }
}
