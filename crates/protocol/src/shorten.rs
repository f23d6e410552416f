//! Shortens JSON objects that are too large for clients: events, states and entries of both agents.

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::marker::PhantomData;

/// Lengths of shortened texts in bytes, tried in this order.
const LENGTHS: [usize; 5] = [64 * 1024, 16 * 1024, 4 * 1024, 1024, 128];

/// Suffix of a shortened text.
const MARK: &str = "… [cut]";

/// Shortens the object `text` so that it has at most `limit` bytes, and adds `"truncated":true`.
///
/// Cuts long texts and leaves out images, then empties arrays. If that is not enough, returns an object with only its
/// type, which is `kind`.
#[must_use]
pub fn shorten(text: &str, kind: &str, limit: usize) -> String {
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

        // Many short texts may be too long together.
        empty_arrays(&mut value);
        let text = value.to_string();
        if text.len() <= limit {
            return text;
        }
    }
    json!({ "type": kind, "truncated": true }).to_string()
}

/// The recursion is bounded, because the parser limits the depth.
fn cut(value: &mut Value, length: usize) {
    let image = match &*value {
        Value::Object(block) if block.get("type").is_some_and(|kind| kind == "image") => {
            block.get("data").and_then(Value::as_str)
        }
        _ => None,
    };
    // Base64 that is cut is not an image.
    if let Some(data) = image.filter(|data| length < data.len()) {
        let bytes = data.len() / 4 * 3;
        *value = json!({ "type": "text", "text": format!("(image left out: {bytes} bytes)") });
    }

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

fn empty_arrays(value: &mut Value) {
    match value {
        Value::Array(items) => items.clear(),
        Value::Object(members) => members.values_mut().for_each(empty_arrays),
        _ => {}
    }
}

/// Most processes, and most denials, in a report of a worker.
pub const MAX_LISTED: usize = 8;

/// Reads the first elements of a list, at most [`MAX_LISTED`].
pub(crate) fn first_few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct First<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for First<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut first = Vec::new();
            while first.len() < MAX_LISTED {
                let Some(element) = list.next_element()? else { return Ok(first) };
                first.push(element);
            }
            // The rest must be read, but is not kept.
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(first)
        }
    }

    deserializer.deserialize_seq(First(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_and_short_ones_stay() {
        let text = format!(r#"{{"type":"x","a":["{}"],"b":"short"}}"#, "é".repeat(100_000));
        let small = shorten(&text, "x", 20_000);
        assert!(small.len() <= 20_000, "{}", small.len());
        let value: Value = serde_json::from_str(&small).unwrap();
        assert_eq!((&value["b"], &value["truncated"]), (&"short".into(), &true.into()));
        assert!(value["a"][0].as_str().unwrap().ends_with("é… [cut]"));
    }

    #[test]
    fn long_images_are_left_out_and_short_ones_stay() {
        let image = |data: &str| json!({ "type": "image", "data": data, "mimeType": "image/png" });
        let content = json!([image(&"A".repeat(400_000)), image("AAAA"), "x".repeat(200_000)]);
        let event = json!({ "type": "message_end", "message": { "content": content } });
        let small = shorten(&event.to_string(), "message_end", 100_000);
        let value: Value = serde_json::from_str(&small).unwrap();
        let content = &value["message"]["content"];
        let note = json!({ "type": "text", "text": "(image left out: 300000 bytes)" });
        assert_eq!((&content[0], &content[1]), (&note, &image("AAAA")));
    }

    #[test]
    fn arrays_that_stay_too_long_are_emptied() {
        let many =
            json!({ "type": "agent_end", "messages": vec![json!({ "text": "x" }); 100_000] });
        let least = r#"{"messages":[],"truncated":true,"type":"agent_end"}"#;
        let same = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(same(&shorten(&many.to_string(), "agent_end", 1000)), same(least));
    }

    #[test]
    fn what_stays_too_long_is_told_by_its_type_only() {
        let members: serde_json::Map<_, _> = (0..1000).map(|n| (n.to_string(), n.into())).collect();
        let least = r#"{"truncated":true,"type":"x"}"#;
        let same = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let members = Value::Object(members).to_string();
        assert_eq!(same(&shorten(&members, "x", 1000)), same(least));
        let deep = format!(r#"{{"type":"x","a":{}1{}}}"#, "[".repeat(500), "]".repeat(500));
        assert_eq!(same(&shorten(&deep, "x", 100)), same(least));
    }
}
