//! Events of a tool call for the session's followers: start, output and end.
//!
//! A worker's texts are forwarded as raw JSON strings. They were checked when they arrived.

use super::Events;
use super::session_call::SessionCall;
use quackd_protocol::SessionId;
use quackd_protocol::client::{
    TextBlock, ToolContent, ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate, ToolInfo,
    UpdateDetails,
};
use quackd_protocol::limits::{MAX_SHOWN_ARGUMENTS_BYTES, MAX_SHOWN_JSON_BYTES};
use quackd_protocol::mask::cut_at_word;
use quackd_protocol::tools::main_parameter;
use quackd_protocol::worker::ToolUpdate;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

/// Maximum length of a string in shortened arguments, in characters.
const LONG_ARGUMENT_CHARS: usize = 1000;

/// Longer arguments are not parsed, because this would block the actors' thread.
const MAX_LOOKED_AT_BYTES: usize = 256 * 1024;

fn arguments(call: &SessionCall) -> &RawValue {
    let none = || serde_json::from_str("{}").unwrap_or(RawValue::NULL);
    call.shown_arguments.as_deref().unwrap_or_else(none)
}

impl Events {
    pub(crate) fn tool_started(&self, session: &SessionId, call: &SessionCall) {
        const NAME: &str = "tool_execution_start";
        // The agent itself publishes the start and the end of its calls.
        if call.agents.is_some() || call.is_own() {
            return;
        }

        self.publish(session, NAME, || ToolExecutionStart {
            kind: NAME,
            tool_call_id: call.id(),
            tool_name: &call.spec.tool,
            args: arguments(call),
            client: call.client(),
        });
    }

    pub(crate) fn tool_printed(
        &self,
        session: &SessionId,
        call: &SessionCall,
        update: &ToolUpdate,
    ) {
        const NAME: &str = "tool_execution_update";
        let tool_name = call.agents.as_ref().unwrap_or(&call.spec.tool);
        // A call that no event shows.
        if tool_name.is_empty() || call.is_own() {
            return;
        }

        let turn = call.spec.origin.turn.as_ref().map(|turn| turn.number);
        self.publish_in_turn(session, turn, NAME, || ToolExecutionUpdate {
            kind: NAME,
            tool_call_id: call.id(),
            tool_name,
            args: arguments(call),
            partial_result: ToolContent {
                content: update.partial.as_deref().map(TextBlock::new).into_iter().collect(),
                details: UpdateDetails {
                    total_bytes: update.total_bytes,
                    omitted_bytes: update.omitted_bytes,
                },
            },
            delta: &update.delta,
        });
    }

    /// Publishes the end of a call. `text` is the JSON string that followers see.
    pub(crate) fn tool_ended(
        &self,
        session: &SessionId,
        call: &SessionCall,
        text: Option<&RawValue>,
        info: &ToolInfo,
    ) {
        const NAME: &str = "tool_execution_end";
        let shown = text.filter(|text| text.get().len() <= MAX_SHOWN_JSON_BYTES);
        let printed = shown.filter(|_| !call.is_own());
        if let Some(text) = printed.and_then(|text| serde_json::from_str::<String>(text.get()).ok())
        {
            self.keep_last_line(session, &text);
        }

        // The agent itself publishes the start and the end of its calls.
        if call.agents.is_some() || call.is_own() {
            return;
        }

        self.publish(session, NAME, || ToolExecutionEnd {
            kind: NAME,
            tool_call_id: call.id(),
            tool_name: &call.spec.tool,
            result: ToolContent {
                // A worker must send a short text for followers. A longer one is left out.
                content: shown.map(TextBlock::new).into_iter().collect(),
                details: info,
            },
            is_error: info.is_error,
            exit_code: info.exit_code,
            duration_ms: info.duration_ms,
            client: call.client(),
        });
    }
}

/// Returns a call's arguments for display: an object on one line, of at most [`MAX_SHOWN_ARGUMENTS_BYTES`].
pub(crate) fn shown_arguments(tool: &str, json: &str) -> Option<Box<RawValue>> {
    let only_size = || serde_json::json!({ "_bytes": json.len() });
    // Short arguments are parsed as well: followers must not get JSON that some parsers reject.
    let read = || serde_json::from_str(json).unwrap_or_else(|_| json.into());

    let mut value =
        if json.len() <= MAX_LOOKED_AT_BYTES { as_object(tool, read()) } else { only_size() };
    if MAX_SHOWN_ARGUMENTS_BYTES < json.len() {
        shorten(&mut value);
    }

    // Shortened arguments can still be too long, for example with many keys.
    let raw = to_raw_value(&value).ok();
    raw.filter(|raw| raw.get().len() <= MAX_SHOWN_ARGUMENTS_BYTES)
        .or_else(|| to_raw_value(&only_size()).ok())
}

fn as_object(tool: &str, value: Value) -> Value {
    if value.is_object() {
        return value;
    }
    let name = main_parameter(tool).unwrap_or("input");
    Value::Object(Map::from_iter([(name.to_owned(), value)]))
}

fn shorten(value: &mut Value) {
    for text in value.as_object_mut().into_iter().flat_map(Map::values_mut) {
        if let Value::String(text) = text
            && let Some((cut, _)) = text.char_indices().nth(LONG_ARGUMENT_CHARS)
        {
            // A cut inside a word could leave a part of a key, which the journal would then not
            // mask.
            text.truncate(cut_at_word(text, cut).len());
            text.push('…');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tool: &str, json: &str, expected: &str) {
        assert_eq!(shown_arguments(tool, json).unwrap().get(), expected, "{json:.100}");
    }

    #[test]
    fn arguments_are_shown_as_one_object_on_one_line() {
        check("bash", r#"{"command":"ls",  "b":1}"#, r#"{"b":1,"command":"ls"}"#);
        check("bash", "{\n \"command\": \"ls\"\n}", r#"{"command":"ls"}"#);
        check("bash", r#""ls""#, r#"{"command":"ls"}"#);
        check("write_file", r#""x""#, r#"{"input":"x"}"#);
        check("bash", "[1]", r#"{"command":[1]}"#);
        check("bash", "not json\n", r#"{"command":"not json\n"}"#);
        check("bash", "{broken", r#"{"command":"{broken"}"#);
    }

    #[test]
    fn what_some_parsers_choke_on_is_shown_as_text() {
        check("bash", r#"{"a":"\ud800"}"#, r#"{"command":"{\"a\":\"\\ud800\"}"}"#);
        check("bash", r#"{"a":1e999}"#, r#"{"command":"{\"a\":1e999}"}"#);
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(500), "]".repeat(500));
        let shown = shown_arguments("bash", &deep).unwrap();
        assert!(shown.get().starts_with(r#"{"command":"{\"a\":[["#), "{shown}");
    }

    #[test]
    fn long_arguments_are_cut_and_endless_ones_only_counted() {
        let content = "é".repeat(20_000);
        let json = serde_json::json!({"path": "a", "content": content}).to_string();
        let shown = shown_arguments("write_file", &json).unwrap();
        let shown: Value = serde_json::from_str(shown.get()).unwrap();
        assert_eq!(shown["path"], "a");
        assert_eq!(shown["content"].as_str().unwrap().chars().count(), LONG_ARGUMENT_CHARS + 1);

        let many = serde_json::json!({"list": vec!["x"; 10_000]}).to_string();
        check("bash", &many, &format!(r#"{{"_bytes":{}}}"#, many.len()));
        let endless = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_LOOKED_AT_BYTES));
        check("bash", &endless, &format!(r#"{{"_bytes":{}}}"#, endless.len()));
    }
}
