//! The table of events: names and data. The daemon's own events come from the types of `quackd_protocol::client`, Pi's from
//! [`super::pi`].

use super::pi::{self, open};
use super::shape::never_null;
use quackd_protocol::approval::Permission;
use quackd_protocol::client::{
    ErrorCode, ForwardInfo, PageRights, ProcessDeath, TermBytes, TermDetached, TermExit, TermOpen,
    TermRows, TermSize, TerminalEvent, ToolExecutionEnd, ToolExecutionStart, ToolExecutionUpdate,
    VoiceSayEvent, VoiceSessionChanged, VoiceStartEvent, VoiceStopEvent,
};
use quackd_protocol::credentials::CredentialUsed;
use quackd_protocol::network::LogEntry;
use quackd_protocol::output::ToolOutput;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

/// Recipients of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventAudience {
    /// Followers of a session. The event has a number.
    Followers,
    /// A single client. The event has no number.
    One,
}

/// Entry of the table.
#[derive(Debug)]
pub(super) struct EventSchema {
    /// Unique among the events.
    pub(super) name: &'static str,
    /// Description, one sentence.
    pub(super) about: &'static str,
    /// Recipients of the event, which decide whether it has a number.
    pub(super) audience: EventAudience,
    /// Schema of the event's `data`.
    pub(super) data: Value,
}

/// Returns every event with a defined shape. Any other output of Pi becomes an event with the name of its `type`.
pub(super) fn events(generator: &mut SchemaGenerator) -> Vec<EventSchema> {
    let mut all: Vec<EventSchema> = tools(generator);
    all.extend(pi::events().map(|(name, about, data)| EventSchema {
        name,
        about,
        audience: EventAudience::Followers,
        data,
    }));
    all.extend(made_here(generator));
    all.extend(terminals(generator));
    all.extend(network(generator));
    all.extend(for_one_client(generator));

    for event in &mut all {
        // Only `voice_say` has data without its name.
        if event.name != "voice_say" {
            named(&mut event.data, event.name);
        }
    }
    all
}

fn tools(generator: &mut SchemaGenerator) -> Vec<EventSchema> {
    let mut update = inline::<ToolExecutionUpdate<'static>>(generator);
    let mut end = inline::<ToolExecutionEnd<'static>>(generator);
    for (ours, pis) in [(&mut update, pi::tool_update()), (&mut end, pi::tool_end())] {
        *ours = json!({"anyOf": [ours.take(), pis]});
    }

    vec![
        followed(
            "tool_execution_start",
            "A tool call has started.",
            inline::<ToolExecutionStart<'static>>(generator),
        ),
        followed("tool_execution_update", "A command has printed output.", update),
        followed("tool_execution_end", "A tool call has finished.", end),
    ]
}

fn made_here(generator: &mut SchemaGenerator) -> Vec<EventSchema> {
    let text = |about: &str| json!({"type": "string", "description": about});
    let permission = inline::<Permission>(generator);
    let mut error = inline::<ProcessDeath<'static>>(generator);
    // Pi reports errors of its extensions under this name too, without the facts about a dead process.
    if let Some(error) = error.as_object_mut() {
        error.insert("required".to_owned(), json!(["type", "extensionPath", "event", "error"]));
    }

    vec![
        followed(
            "extension_ui_request",
            "A question or notification of Pi, or, with `permission`, a question of quackd about a denied operation. `setStatus` with a message that starts with `voice:` is the state of \
             the session's voice client.",
            open(
                json!({
                    "id": text("Id for the answer."),
                    "method": text("`select`, `confirm`, `input` and `editor` need an answer. Others are notifications."),
                    "title": text("The question."),
                    "message": text("Further text."),
                    "options": {"type": "array", "description": "Of `select`."},
                    "placeholder": text("Of `input`."),
                    "prefill": text("Of `editor`: the initial text."),
                    "timeout": {"type": "number", "description": "Milliseconds until the question is cancelled."},
                    "permission": permission,
                }),
                &["id", "method"],
            ),
        ),
        followed(
            "extension_ui_closed",
            "A question no longer needs an answer.",
            open(
                json!({
                    "id": text("The question."),
                    "reason": {"type": "string", "enum": ["answered", "timeout", "ended"]},
                    "decision": {"type": "string", "enum": ["allow", "deny"], "description": "The answer about a permission."},
                    "scope": {"type": "string", "enum": ["once", "session", "workspace", "always"]},
                    "by": text("The client that answered, for display."),
                }),
                &["id", "reason"],
            ),
        ),
        followed(
            "extension_error",
            "A worker or an agent has crashed (`event` is `process_death`), or an extension of Pi has failed.",
            error,
        ),
        followed(
            "prompt_error",
            "A prompt has failed after it was accepted.",
            open(json!({"error": text("Reason."), "code": text(ErrorCode::ABOUT)}), &["error"]),
        ),
        followed(
            "session_deleted",
            "The session was deleted. This is its last event.",
            open(json!({}), &[]),
        ),
    ]
}

fn terminals(generator: &mut SchemaGenerator) -> Vec<EventSchema> {
    vec![
        followed(
            TerminalEvent::STARTED,
            "A program was started on a terminal.",
            inline::<TerminalEvent>(generator),
        ),
        followed(
            TerminalEvent::ENDED,
            "The program on a terminal has ended.",
            inline::<TerminalEvent>(generator),
        ),
        followed(
            TerminalEvent::TITLE,
            "The program on a terminal has set another title.",
            inline::<TerminalEvent>(generator),
        ),
    ]
}

fn network(generator: &mut SchemaGenerator) -> Vec<EventSchema> {
    vec![
        followed(
            "network_denied",
            "A command was refused a host. Once in 5 s for each host and port.",
            inline::<LogEntry>(generator),
        ),
        followed(
            CredentialUsed::NAME,
            "A command used a credential of the user, or was refused it.",
            inline::<CredentialUsed>(generator),
        ),
        followed(
            "forward_opened",
            "A port of the session is reachable on this machine.",
            inline::<ForwardInfo>(generator),
        ),
        followed(
            "forward_closed",
            "A port of the session is no longer reachable on this machine.",
            inline::<ForwardInfo>(generator),
        ),
    ]
}

fn for_one_client(generator: &mut SchemaGenerator) -> Vec<EventSchema> {
    let single =
        |name, about, data| EventSchema { name, about, audience: EventAudience::One, data };

    vec![
        single(
            "voice_session_changed",
            "Another session is the active one.",
            inline::<VoiceSessionChanged<'static>>(generator),
        ),
        single(
            ToolOutput::NAME,
            "A command that this client started with `stream` has printed output.",
            inline::<ToolOutput>(generator),
        ),
        single(
            TermBytes::OUTPUT,
            "The program on a terminal that this client is attached to has printed output.",
            inline::<TermBytes>(generator),
        ),
        single(
            TermBytes::REDRAW,
            "The whole screen of the terminal: first event, and in place of output that was not sent.",
            inline::<TermBytes>(generator),
        ),
        single(
            TermRows::NAME,
            "Rows of the screen, for a client that is attached with `asRows`.",
            inline::<TermRows>(generator),
        ),
        single(
            TermSize::NAME,
            "Another client has changed the size of the terminal.",
            inline::<TermSize>(generator),
        ),
        single(
            TermOpen::NAME,
            "The program asks to open an address in the user's browser. For clients that may type.",
            inline::<TermOpen>(generator),
        ),
        single(
            TermExit::NAME,
            "The program has ended. Last event of the terminal.",
            inline::<TermExit>(generator),
        ),
        single(
            TermDetached::NAME,
            "This client is no longer attached to the terminal.",
            inline::<TermDetached>(generator),
        ),
        single(
            "voice_start",
            "Requests the client to start listening.",
            inline::<VoiceStartEvent<'static>>(generator),
        ),
        single("voice_say", "A prompt of the user.", inline::<VoiceSayEvent<'static>>(generator)),
        single(
            "voice_stop",
            "Requests the client to end the conversation.",
            inline::<VoiceStopEvent<'static>>(generator),
        ),
        single(
            "remote_ready",
            "A WebSocket is open; `sessionId` is `remote-control`.",
            remote_ready(generator),
        ),
    ]
}

fn remote_ready(generator: &mut SchemaGenerator) -> Value {
    json!({
        "type": "object",
        "properties": {
            "clientId": {"type": "string"},
            "websocketUrl": {"type": "string"},
            "rights": inline::<PageRights>(generator),
        },
        "required": ["clientId", "websocketUrl"],
    })
}

fn followed(name: &'static str, about: &'static str, data: Value) -> EventSchema {
    EventSchema { name, about, audience: EventAudience::Followers, data }
}

/// Returns the schema of a type itself and not a reference to it: the data of an event has no own name.
fn inline<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    let mut schema = T::json_schema(generator).to_value();
    never_null(&mut schema);
    schema
}

/// Sets `type` to the event's name, in each alternative.
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
    if let Some(required) =
        required.as_array_mut().filter(|all| !all.iter().any(|word| word == "type"))
    {
        required.insert(0, "type".into());
    }
}
