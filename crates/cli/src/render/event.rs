//! What is read out of an event's data, whatever it is: nothing here can fail. Used by the renderer.

use crate::age;
use serde_json::Value;
use std::time::Duration;

/// The text under `key`; empty if there is none.
pub(super) fn text<'a>(data: &'a Value, key: &str) -> &'a str {
    data.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The text of a message's or a result's content: a text, or blocks of which some have text.
pub(super) fn blocks(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let is_text = |block: &&Value| text(block, "type") == "text";
            let texts = blocks.iter().filter(is_text).map(|block| text(block, "text"));
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// A length of time: whole milliseconds below a second.
pub(super) fn span(ms: u64) -> String {
    if ms < 1000 { format!("{ms} ms") } else { age::span(Duration::from_millis(ms)) }
}
