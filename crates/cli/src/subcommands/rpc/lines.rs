//! The lines of the protocol: commands, responses and events.

use quackd_client::{ClientError, Event};
use quackd_ipc::lines::Line;
use quackd_protocol::limits::MAX_LINE_BYTES;
use quackd_protocol::surrogates;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// A command: its id, its type and the object.
pub(super) type Command = (Option<Value>, String, Map<String, Value>);

/// Reads a command. The error is the response.
pub(super) fn parse(line: &Line) -> Result<Command, String> {
    let refuse = |reason: String| {
        json!({
            "type": "response", "command": "parse", "success": false,
            "error": format!("Failed to parse command: {reason}"),
        })
        .to_string()
    };

    let Line::Text(text) = line else {
        return Err(refuse(format!("the line is longer than {MAX_LINE_BYTES} bytes")));
    };

    let read: Result<Map<String, Value>, _> = surrogates::parse(text);
    let mut fields = read.map_err(|error| refuse(error.to_string()))?;
    let name = fields.get("type").and_then(Value::as_str).map(str::to_owned);
    let name = name.ok_or_else(|| refuse("it has no type".to_owned()))?;

    let id = match name.as_str() {
        // Its id is that of the question, and it has no response.
        "extension_ui_response" => None,
        _ => fields.remove("id"),
    };
    Ok((id, name, fields))
}

/// Version of Pi whose names of events the client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Dialect {
    /// Since Pi 0.73.
    #[default]
    Newest,
    /// Pi 0.55 and the agents of quackd.
    Old,
}

/// A response.
#[derive(Serialize)]
struct Response<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Value>,
    r#type: &'a str,
    command: &'a str,
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Returns the text of a value.
pub(super) fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

pub(super) fn response(
    id: Option<&Value>,
    name: &str,
    result: Result<Option<Box<RawValue>>, ClientError>,
) -> String {
    let (data, error) = match result {
        Ok(data) => (data, None),
        Err(ClientError::Refused { text, .. }) => (None, Some(text)),
        Err(error) => (None, Some(error.to_string())),
    };

    let response = Response {
        id,
        r#type: "response",
        command: name,
        success: error.is_none(),
        data: data.as_deref(),
        error,
    };
    serde_json::to_string(&response).unwrap_or_default()
}

/// Returns the line of an event: its data, which names the event itself.
pub(super) fn event_line(event: Event, dialect: Dialect) -> Option<String> {
    let data: Box<RawValue> = event.data?;
    let newer = match (event.name.as_str(), dialect) {
        ("auto_compaction_start", Dialect::Newest) => Some("compaction_start"),
        ("auto_compaction_end", Dialect::Newest) => Some("compaction_end"),
        _ => None,
    };

    // Without a change, the daemon's text is passed on: parsing it costs time.
    if newer.is_none() && data.get().contains("\"type\"") {
        return Some(data.get().to_owned());
    }

    let mut fields: Map<String, Value> = serde_json::from_str(data.get()).ok()?;
    if newer.is_some() {
        // Absent without a summary.
        fields.retain(|name, value| name != "result" || !value.is_null());
    }

    let name = newer.map_or(event.name, str::to_owned);
    fields.insert("type".to_owned(), name.into());
    to_raw_value(&fields).ok().map(|data| data.get().to_owned())
}
