//! The lines of the protocol: commands, responses and events.

use quackd_client::{ClientError, Event};
use quackd_ipc::lines::Line;
use quackd_protocol::limits::MAX_LINE_BYTES;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// A command: its id, its type and the object.
pub(super) type Command = (Option<Value>, String, Map<String, Value>);

/// Reads a command. The error is the response.
pub(super) fn parse(line: &Line) -> Result<Command, String> {
    let refuse = |why: String| {
        json!({
            "type": "response", "command": "parse", "success": false,
            "error": format!("Failed to parse command: {why}"),
        })
        .to_string()
    };
    let Line::Text(text) = line else {
        return Err(refuse(format!("the line is longer than {MAX_LINE_BYTES} bytes")));
    };
    let read: Result<Map<String, Value>, _> = serde_json::from_slice(text);
    let mut fields = read.map_err(|error| refuse(error.to_string()))?;
    let name = fields.get("type").and_then(Value::as_str).map(str::to_owned);
    let name = name.ok_or_else(|| refuse("it has no type".to_owned()))?;
    let id = match name.as_str() {
        "extension_ui_response" => None,
        _ => fields.remove("id"),
    };
    Ok((id, name, fields))
}

pub(super) fn response(
    id: Option<&Value>,
    name: &str,
    result: Result<Option<Value>, ClientError>,
) -> String {
    let mut line = Map::new();
    if let Some(id) = id {
        line.insert("id".to_owned(), id.clone());
    }
    line.insert("type".to_owned(), "response".into());
    line.insert("command".to_owned(), name.into());
    line.insert("success".to_owned(), result.is_ok().into());
    match result {
        Ok(Some(data)) => drop(line.insert("data".to_owned(), data)),
        Ok(None) => {}
        Err(ClientError::Refused { text, .. }) => {
            drop(line.insert("error".to_owned(), text.into()));
        }
        Err(error) => drop(line.insert("error".to_owned(), error.to_string().into())),
    }
    Value::Object(line).to_string()
}

/// Returns the line of an event: its data, which names the event itself.
pub(super) fn event_line(event: Event) -> Option<String> {
    let data: Box<RawValue> = event.data?;
    match data.get().contains("\"type\"") {
        true => Some(data.get().to_owned()),
        false => {
            let mut fields: Map<String, Value> = serde_json::from_str(data.get()).ok()?;
            fields.insert("type".to_owned(), event.name.into());
            to_raw_value(&fields).ok().map(|data| data.get().to_owned())
        }
    }
}
