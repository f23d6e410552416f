//! Reads fields of an event's data. Accepts data of any shape and never fails. Used by the renderer.

use crate::time_format;
use serde_json::Value;
use std::time::Duration;

/// Returns the text at `key`, or an empty text.
pub(super) fn text<'a>(data: &'a Value, key: &str) -> &'a str {
    data.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the number at `key`, or 0.
pub(super) fn number(data: &Value, key: &str) -> u64 {
    data.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// Returns the text of a message's or a result's content, which is a text or a list of blocks.
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

/// Formats a duration, below 1 s in whole milliseconds.
pub(super) fn span(ms: u64) -> String {
    if ms < 1000 { format!("{ms} ms") } else { time_format::span(Duration::from_millis(ms)) }
}
