//! The table of the events: their names and data, the daemon's own from the types of [`crate::client`], Pi's
//! from [`super::pi`].

use super::document::never_null;
use super::pi::{self, open};
use crate::client::{
    ProcessDeath, ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate, VoiceSayEvent,
    VoiceSessionChanged, VoiceStartEvent, VoiceStopEvent,
};
use crate::output::ToolOutput;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

/// Whom an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// Followers of a session: it has a number.
    Followers,
    /// One client alone: it has none.
    One,
}

/// One event.
#[derive(Debug)]
pub(super) struct Event {
    /// Its name.
    pub(super) name: &'static str,
    /// What it tells, a sentence.
    pub(super) about: &'static str,
    /// Whom it is for.
    pub(super) door: Door,
    /// The shape of its `data`.
    pub(super) data: Value,
}

/// Every event that has a shape of its own. What else Pi prints comes as an event with the name of its
/// `type`.
pub(super) fn events(generator: &mut SchemaGenerator) -> Vec<Event> {
    let mut all: Vec<Event> = tools(generator);
    all.extend(pi::events().map(|(name, about, data)| Event {
        name,
        about,
        door: Door::Followers,
        data,
    }));
    all.extend(made_here(generator));
    all.extend(told(generator));
    for event in &mut all {
        // Only this one has data without its name.
        if event.name != "voice_say" {
            named(&mut event.data, event.name);
        }
    }
    all
}

fn tools(generator: &mut SchemaGenerator) -> Vec<Event> {
    let mut update = inline::<ToolExecutionUpdate<'static>>(generator);
    let mut end = inline::<ToolExecutionEnd<'static>>(generator);
    for (ours, pis) in [(&mut update, pi::tool_update()), (&mut end, pi::tool_end())] {
        *ours = json!({"anyOf": [ours.take(), pis]});
    }
    vec![
        followed(
            "tool_execution_start",
            "A tool call has begun.",
            inline::<ToolExecutionStart<'static>>(generator),
        ),
        followed("tool_execution_update", "A command has printed something.", update),
        followed("tool_execution_end", "A tool call has ended.", end),
    ]
}

fn made_here(generator: &mut SchemaGenerator) -> Vec<Event> {
    let text = |about: &str| json!({"type": "string", "description": about});
    let mut error = inline::<ProcessDeath<'static>>(generator);
    // Pi tells errors of its extensions under this name too, without what is known of a dead process.
    if let Some(error) = error.as_object_mut() {
        error.insert("required".to_owned(), json!(["type", "extensionPath", "event", "error"]));
    }
    vec![
        followed(
            "extension_ui_request",
            "Pi asks or tells something, or (`setStatus` with a message that begins with `voice:`) what the \
             session's voice client does.",
            open(
                json!({
                    "id": text("What an answer names."),
                    "method": text("To be answered: `select`, `confirm`, `input` and `editor`. Others tell something."),
                    "title": text("What is asked."),
                    "message": text("More words."),
                    "options": {"type": "array", "description": "Of `select`."},
                    "placeholder": text("Of `input`."),
                    "prefill": text("Of `editor`: what stands there already."),
                    "timeout": {"type": "number", "description": "Milliseconds until it counts as cancelled."},
                }),
                &["id", "method"],
            ),
        ),
        followed(
            "extension_ui_closed",
            "A question of Pi needs no answer any more.",
            open(
                json!({"id": text("The question."), "reason": {"type": "string", "enum": ["answered", "timeout", "ended"]}}),
                &["id", "reason"],
            ),
        ),
        followed(
            "extension_error",
            "A worker or Pi has died (`event` is `process_death`), or an extension of Pi has failed.",
            error,
        ),
        followed(
            "prompt_error",
            "A prompt has failed after it was accepted.",
            open(json!({"error": text("Why.")}), &["error"]),
        ),
        followed("session_deleted", "The session is gone: its last event.", open(json!({}), &[])),
    ]
}

fn told(generator: &mut SchemaGenerator) -> Vec<Event> {
    let one = |name, about, data| Event { name, about, door: Door::One, data };
    vec![
        one(
            "voice_session_changed",
            "Another session is the active one.",
            inline::<VoiceSessionChanged<'static>>(generator),
        ),
        one(
            ToolOutput::NAME,
            "A command that this client started with `stream` has printed something.",
            inline::<ToolOutput>(generator),
        ),
        one("voice_start", "Begin to listen.", inline::<VoiceStartEvent<'static>>(generator)),
        one("voice_say", "What a person wrote.", inline::<VoiceSayEvent<'static>>(generator)),
        one("voice_stop", "End the conversation.", inline::<VoiceStopEvent<'static>>(generator)),
        one(
            "remote_ready",
            "A WebSocket is open; `sessionId` is `remote-control`.",
            json!({
                "type": "object",
                "properties": {"clientId": {"type": "string"}, "websocketUrl": {"type": "string"}},
                "required": ["clientId", "websocketUrl"],
            }),
        ),
    ]
}

fn followed(name: &'static str, about: &'static str, data: Value) -> Event {
    Event { name, about, door: Door::Followers, data }
}

/// The schema of a type itself and not a reference to it: an event's data has no name of its own.
fn inline<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    let mut schema = T::json_schema(generator).to_value();
    never_null(&mut schema);
    schema
}

/// Makes `type` the event's name, in each alternative.
fn named(data: &mut Value, name: &str) {
    if let Some(alternatives) = data.get_mut("anyOf").and_then(Value::as_array_mut) {
        return alternatives.iter_mut().for_each(|data| named(data, name));
    }
    let Some(data) = data.as_object_mut() else { return };
    if let Some(properties) = data.entry("properties").or_insert_with(|| json!({})).as_object_mut()
    {
        properties.insert("type".to_owned(), json!({"const": name}));
    }
    let required = data.entry("required").or_insert_with(|| json!([]));
    if let Some(required) = required.as_array_mut().filter(|all| !all.iter().any(|it| it == "type"))
    {
        required.insert(0, "type".into());
    }
}
