//! Translates Pi's output, in any of its dialects (0.55 to 1.5), to this daemon's wire format. Pure.
//!
//! | Pi prints | wire format |
//! |---|---|
//! | `message_update` with the whole message, twice (0.55) | the same with the message's role only |
//! | `message_update` without a message (from 0.84 on) | with the role added |
//! | `compaction_start`, `compaction_end` (from 0.73 on) | `auto_compaction_start`, `auto_compaction_end` |
//! | the end of a compaction without `result` | with `"result":null` |
//! | the end of a tool with a nested exit code (1.5) | with `exitCode` added at the top |
//! | anything else | the same bytes |

use crate::fields::{Fields, Writer, quoted};
use quackd_protocol::limits::{
    MAX_AGENT_ANSWER_BYTES, MAX_AGENT_EVENT_BYTES, MAX_AGENT_STATE_BYTES,
};
use quackd_protocol::shorten::shorten;
use serde::Deserialize;
use std::borrow::Cow;

/// Maximum length of an event's name, and of a dialog's id, in bytes.
const MAX_NAME_BYTES: usize = 64;
const MAX_DIALOG_ID_BYTES: usize = 256;

/// Maximum length of Pi's error text on the wire, in characters.
const MAX_ERROR_CHARS: usize = 4000;

/// Prefix of the number of a command in the id that Pi gets.
const ID_PREFIX: char = 'q';

/// One line of Pi's output.
#[derive(Debug, PartialEq)]
pub(crate) enum PiLine {
    /// An answer to a command.
    Response {
        /// Number of the command. `None` if Pi omitted it.
        number: Option<u64>,
        /// Name of the command, as repeated by Pi.
        command: String,
        success: bool,
        error: Option<String>,
        /// JSON on one line.
        data: Option<String>,
    },
    /// An event.
    Event(PiEvent),
    /// A question that waits for the user.
    Dialog { id: String, timeout_ms: Option<u64>, data: String },
}

/// An event in the wire format.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PiEvent {
    pub(crate) name: String,
    /// JSON on one line.
    pub(crate) data: String,
    /// Effect on the turn.
    pub(crate) meaning: TurnEffect,
}

/// Effect of an event on the end of the turn ([`crate::turn`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnEffect {
    /// A run began.
    Begin,
    /// A run ended. `again` is true if another run follows, and `None` if Pi does not report it and the run failed.
    End { again: Option<bool> },
    /// A retry follows, or a compaction of the context before one.
    Again,
    /// No retry follows.
    GaveUp,
    /// Pi is idle.
    Settled,
    /// No effect.
    Other,
}

/// Returns the id of a command for Pi.
pub(crate) fn id_of(number: u64) -> String {
    format!("{ID_PREFIX}{number}")
}

/// Parses one line. `None` if it is not part of Pi's protocol.
pub(crate) fn read(line: &str) -> Option<PiLine> {
    // A later reader could take line breaks between tokens for the end of the line.
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
        long if MAX_AGENT_EVENT_BYTES < long.len() => shorten(&long, name, MAX_AGENT_EVENT_BYTES),
        fits => fits.into_owned(),
    };

    if kind == "extension_ui_request"
        && let Some(id) = dialog_id(&fields)
    {
        return Some(PiLine::Dialog { id, timeout_ms: timeout(&fields), data });
    }

    Some(PiLine::Event(PiEvent { meaning: meaning(name, &fields), name: name.to_owned(), data }))
}

fn response(fields: &Fields<'_>) -> Option<PiLine> {
    let command: String = fields.get_as("command").unwrap_or_default();
    let number = fields.get_as::<Cow<'_, str>>("id");
    let number = number.and_then(|id| id.strip_prefix(ID_PREFIX)?.parse().ok());
    // The answer has a foreign id, so no command of this worker waits for it.
    if number.is_none() && fields.get("id").is_some_and(|id| id != "null") {
        return None;
    }

    let success = fields.get_as("success").unwrap_or(false);
    let error = fields.get_as::<Cow<'_, str>>("error");
    let error = error.map(|error| error.chars().take(MAX_ERROR_CHARS).collect());
    let data = fields.get("data").filter(|data| *data != "null").map(|data| state(&command, data));
    Some(PiLine::Response { number, command, success, error, data })
}

/// Returns Pi's state without secrets: version 0.55 puts the provider's key into the model's headers.
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

    let limit = if command == "get_state" { MAX_AGENT_STATE_BYTES } else { MAX_AGENT_ANSWER_BYTES };
    match data {
        long if limit < long.len() => shorten(&long, command, limit),
        fits => fits.into_owned(),
    }
}

/// Returns the update with the delta only, because the reader already has the earlier part of the message.
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
    // The conversion saturates. A value too large for a duration means no timeout.
    u64::try_from(std::time::Duration::try_from_secs_f64(ms / 1000.0).ok()?.as_millis()).ok()
}

fn meaning(name: &str, fields: &Fields<'_>) -> TurnEffect {
    match name {
        "agent_start" => TurnEffect::Begin,
        "agent_end" => {
            let will_retry = fields.get_as("willRetry");
            // A successful run is never retried. A failed one may be.
            let again = will_retry.or_else(|| (!ended_in_error(fields)).then_some(false));
            TurnEffect::End { again }
        }
        "auto_retry_start" | "auto_compaction_start" => TurnEffect::Again,
        "auto_retry_end" if fields.get("success") == Some("false") => TurnEffect::GaveUp,
        "auto_compaction_end" if fields.get("willRetry") == Some("true") => TurnEffect::Again,
        "auto_compaction_end" => TurnEffect::GaveUp,
        "agent_settled" => TurnEffect::Settled,
        _ => TurnEffect::Other,
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
