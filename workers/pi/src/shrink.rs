//! Cuts the long texts of an event that would be too large for those who watch. Used by [`crate::dialect`].

use serde_json::Value;

/// To what length texts are cut, tried in this order, in bytes.
const LENGTHS: [usize; 5] = [64 * 1024, 16 * 1024, 4 * 1024, 1024, 128];

/// What stands at the end of a text that was cut.
const MARK: &str = "… [cut]";

/// `text`, an object, with its long texts cut so that it has at most `limit` bytes, and `"truncated":true`
/// beside them. What cannot be made so short becomes an object that says its type and no more.
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

/// The depth is bounded by the parser's.
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
