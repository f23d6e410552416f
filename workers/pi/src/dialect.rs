//! What Pi prints, in any of its dialects (0.55 to 1.5), as this daemon's wire says it. Pure.
//!
//! | Pi prints | the wire says |
//! |---|---|
//! | `message_update` with the whole message, twice (0.55) | the same with the message's role only |
//! | `message_update` without a message (from 0.84 on) | the same, with the role |
//! | `compaction_start`, `compaction_end` (from 0.73 on) | `auto_compaction_start`, `auto_compaction_end` |
//! | the end of a compaction without `result` | with `"result":null` |
//! | the end of a tool with an exit code inside (1.5) | with `exitCode` beside it |
//! | anything else | the same bytes |

use crate::fields::{Fields, Writer, quoted};
use crate::shrink::shrink;
use quackd_protocol::limits::{MAX_PI_EVENT_BYTES, MAX_PI_STATE_BYTES};
use serde::Deserialize;
use std::borrow::Cow;

/// Longest name of an event, and longest id of a dialog, in bytes.
const MAX_NAME_BYTES: usize = 64;
const MAX_DIALOG_ID_BYTES: usize = 256;

/// Longest reason of Pi's that is passed on, in characters.
const MAX_ERROR_CHARS: usize = 4000;

/// Before the number of a command in the id that Pi gets.
const ID_PREFIX: char = 'q';

/// One line of Pi's.
#[derive(Debug, PartialEq)]
pub(crate) enum Said {
    /// An answer to a command.
    Response {
        /// The command's number; `None` if Pi left it out.
        number: Option<u64>,
        /// The command's name, as Pi repeats it.
        command: String,
        success: bool,
        error: Option<String>,
        /// JSON on one line.
        data: Option<String>,
    },
    /// Something happened.
    Event(Event),
    /// A question that waits for a person.
    Dialog { id: String, timeout_ms: Option<u64>, data: String },
}

/// Something that happened, as the wire says it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: String,
    /// JSON on one line.
    pub(crate) data: String,
    /// What it means for the turn.
    pub(crate) meaning: Meaning,
}

/// What an event means for whether the turn is over ([`crate::turn`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A run began.
    Begin,
    /// A run ended; `again` is whether another one takes its place, if Pi says so or if it ended well.
    End { again: Option<bool> },
    /// Another try will be made, or the context is being made shorter for one.
    Again,
    /// No other try will be made.
    GaveUp,
    /// Pi is idle.
    Settled,
    /// Nothing.
    Other,
}

/// The id of a command as Pi gets it.
pub(crate) fn id_of(number: u64) -> String {
    format!("{ID_PREFIX}{number}")
}

/// Reads one line. `None` if it is none of Pi's protocol.
pub(crate) fn read(line: &str) -> Option<Said> {
    // White space between tokens could be taken for the end of a line by a reader further down.
    let plain: Cow<'_, str> = if line.contains(['\n', '\r']) {
        serde_json::from_str::<serde_json::Value>(line).ok()?.to_string().into()
    } else {
        line.into()
    };
    let line = plain.trim();
    let fields = Fields::read(line)?;
    let kind: Cow<'_, str> = fields.get_as("type")?;
    if kind == "response" {
        return response(&fields);
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if kind.is_empty() || MAX_NAME_BYTES < kind.len() || !kind.chars().all(is_name) {
        return None;
    }
    let name: &str = match &*kind {
        "compaction_start" => "auto_compaction_start",
        "compaction_end" => "auto_compaction_end",
        same => same,
    };
    let data: Cow<'_, str> = match &*kind {
        "message_update" => update(&fields).into(),
        "compaction_start" => renamed(&fields, name).end().into(),
        "compaction_end" | "auto_compaction_end" => compaction_end(&fields, name).into(),
        "tool_execution_end" => tool_end(&fields).map_or_else(|| line.into(), Into::into),
        _ => line.into(),
    };
    let data = match data {
        long if MAX_PI_EVENT_BYTES < long.len() => shrink(&long, name, MAX_PI_EVENT_BYTES),
        fits => fits.into_owned(),
    };
    if kind == "extension_ui_request"
        && let Some(id) = dialog_id(&fields)
    {
        return Some(Said::Dialog { id, timeout_ms: timeout(&fields), data });
    }
    Some(Said::Event(Event { meaning: meaning(name, &fields), name: name.to_owned(), data }))
}

fn response(fields: &Fields<'_>) -> Option<Said> {
    let command: String = fields.get_as("command").unwrap_or_default();
    let number = fields.get_as::<Cow<'_, str>>("id");
    let number = number.and_then(|id| id.strip_prefix(ID_PREFIX)?.parse().ok());
    // One for somebody else: nobody of ours waits for it.
    if number.is_none() && fields.get("id").is_some_and(|id| id != "null") {
        return None;
    }
    let success = fields.get_as("success").unwrap_or(false);
    let error = fields.get_as::<Cow<'_, str>>("error");
    let error = error.map(|error| error.chars().take(MAX_ERROR_CHARS).collect());
    let data = fields.get("data").filter(|data| *data != "null").map(|data| state(&command, data));
    Some(Said::Response { number, command, success, error, data })
}

/// Pi's state without what is not for everybody: 0.55 puts the provider's key among the model's headers.
fn state(command: &str, data: &str) -> String {
    let fields = Fields::read(data).filter(|_| command == "get_state");
    let data: Cow<'_, str> = match fields {
        None => data.into(),
        Some(fields) => fields
            .write_with(|name, value| {
                let model = Fields::read(value).filter(|_| name == "model");
                let Some(model) = model else { return Some(value.into()) };
                let public =
                    |name: &str, value| (name != "headers").then_some(Cow::Borrowed(value));
                Some(model.write_with(public).end().into())
            })
            .end()
            .into(),
    };
    match data {
        long if MAX_PI_STATE_BYTES < long.len() => shrink(&long, command, MAX_PI_STATE_BYTES),
        fits => fits.into_owned(),
    }
}

/// The delta alone: what the message is so far, its reader has.
fn update(fields: &Fields<'_>) -> String {
    let role = fields.get("message").and_then(|message| {
        let fields = Fields::read(message)?;
        fields.get("role").map(str::to_owned)
    });
    let role = role.unwrap_or_else(|| quoted("assistant"));
    let mut writer = Writer::new();
    writer.add("type", &quoted("message_update"));
    writer.add("message", &format!("{{\"role\":{role}}}"));
    let rest = |name: &str, value| match name {
        "type" | "message" => None,
        "assistantMessageEvent" => {
            let Some(event) = Fields::read(value) else { return Some(value.into()) };
            let delta = |name: &str, value| {
                (!["partial", "message"].contains(&name)).then_some(Cow::Borrowed(value))
            };
            Some(event.write_with(delta).end().into())
        }
        _ => Some(value.into()),
    };
    fields.write_after(writer, rest).end()
}

fn renamed(fields: &Fields<'_>, name: &str) -> Writer {
    let name = quoted(name);
    fields.write_with(|member, value| match member {
        "type" => Some(name.clone().into()),
        _ => Some(value.into()),
    })
}

fn compaction_end(fields: &Fields<'_>, name: &str) -> String {
    let mut writer = renamed(fields, name);
    if fields.get("result").is_none() {
        writer.add("result", "null");
    }
    writer.end()
}

fn tool_end(fields: &Fields<'_>) -> Option<String> {
    let result = Fields::read(fields.get("result")?)?;
    let structured = Fields::read(result.get("structuredContent")?)?;
    let code: i64 = structured.get_as("exit_code")?;
    if fields.get("exitCode").is_some() {
        return None;
    }
    let mut writer = fields.write_with(|_, value| Some(value.into()));
    writer.add("exitCode", &code.to_string());
    Some(writer.end())
}

fn dialog_id(fields: &Fields<'_>) -> Option<String> {
    let method: Cow<'_, str> = fields.get_as("method")?;
    let waits = ["select", "confirm", "input", "editor"].contains(&&*method);
    let id: String = fields.get_as("id").filter(|_| waits)?;
    (!id.is_empty() && id.len() <= MAX_DIALOG_ID_BYTES).then_some(id)
}

fn timeout(fields: &Fields<'_>) -> Option<u64> {
    let ms: f64 = fields.get_as("timeout").filter(|ms| *ms > 0.0)?;
    // Saturates; a day is as good as for ever.
    u64::try_from(std::time::Duration::try_from_secs_f64(ms / 1000.0).ok()?.as_millis()).ok()
}

fn meaning(name: &str, fields: &Fields<'_>) -> Meaning {
    match name {
        "agent_start" => Meaning::Begin,
        "agent_end" => {
            let told = fields.get_as("willRetry");
            // One that ended well is followed by nothing; one that failed may be.
            let again = told.or_else(|| (!ended_in_error(fields)).then_some(false));
            Meaning::End { again }
        }
        "auto_retry_start" | "auto_compaction_start" => Meaning::Again,
        "auto_retry_end" if fields.get("success") == Some("false") => Meaning::GaveUp,
        "auto_compaction_end" if fields.get("willRetry") == Some("true") => Meaning::Again,
        "auto_compaction_end" => Meaning::GaveUp,
        "agent_settled" => Meaning::Settled,
        _ => Meaning::Other,
    }
}

fn ended_in_error(fields: &Fields<'_>) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Message {
        #[serde(default)]
        stop_reason: Option<String>,
    }

    let messages: Vec<Message> = fields.get_as("messages").unwrap_or_default();
    let last = messages.last().and_then(|message| message.stop_reason.as_deref());
    last == Some("error")
}

#[cfg(test)]
mod tests;
