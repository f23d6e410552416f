//! Following a session: parameters and data of `follow`, and the events of tools.
//!
//! An event is `{"event","sessionId","data","seq"}`. `seq` counts every event of a session from 1. It restarts with the
//! daemon, and `epoch` then changes. Event names and shapes are the agent's, with additional keys from quackd.

use crate::SessionId;
use crate::client::{ClientName, WorkerState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// `follow` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FollowParams {
    /// Session reference; the active session if absent or empty.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub session_id: Value,
    /// Replay the events after this number, if they are still kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_seq: Option<u64>,
    /// The run of the daemon that `since_seq` belongs to, from an earlier reply of `follow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// True if this client answers questions about permissions. Without such a client nothing is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<bool>,
}

/// `follow` data. Pi's state is forwarded unchanged.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "FollowData")]
pub struct FollowDataOf<P> {
    /// The session.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// Path of the session's workspace, or `unknown`.
    pub workspace_path: String,
    /// Whether a worker process of the session is alive.
    pub is_running: bool,
    /// Pi's own state; `null` without a Pi.
    pub session_state: Option<P>,
    /// History file that the macOS app writes.
    pub app_history_file: String,
    /// Whether the history file exists.
    pub app_history_exists: bool,
    /// Size of the history file, in bytes.
    pub app_history_size_bytes: u64,
    /// Number of the last event before this reply. The next event has a higher number.
    pub seq: u64,
    /// This run of the daemon.
    pub epoch: String,
    /// True: the events between `sinceSeq` and `seq` are lost. The client's view of the session is out of date, and new
    /// events start after `seq`.
    pub resync: bool,
    /// Events that are sent again before new ones.
    pub replayed: u64,
    /// The session's worker.
    pub worker: WorkerState,
}

/// `follow` data as our client reads it.
pub type FollowData = FollowDataOf<Value>;

/// One event line as the supervisor writes it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventLine<'a, D> {
    /// The event's name: the `type` of its data.
    pub event: &'a str,
    /// The session.
    pub session_id: &'a SessionId,
    /// Payload of the event.
    pub data: D,
    /// Counts the session's events.
    pub seq: u64,
    /// The turn of the session's agent that the event belongs to, as in the reply of `say`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
}

/// An event for a single client, as the supervisor writes it. It is not one of the session's events and has no number.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToldLine<'a, D> {
    /// The event's name.
    pub event: &'a str,
    /// The session it is about.
    pub session_id: &'a SessionId,
    /// Payload of the event.
    pub data: D,
}

/// Text as the agent's content blocks carry it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TextBlock<'a> {
    /// Always `text`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The text, a JSON string that is forwarded as it is.
    #[schemars(with = "String")]
    pub text: &'a RawValue,
}

impl<'a> TextBlock<'a> {
    /// A block with `text`, which must be a JSON string.
    #[must_use]
    pub fn new(text: &'a RawValue) -> Self {
        Self { kind: "text", text }
    }
}

/// Output of a tool, with quackd's `details`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Shown{T}")]
pub struct ToolContent<'a, T> {
    /// At most one text block.
    pub content: Vec<TextBlock<'a>>,
    /// Facts in addition to the text.
    pub details: T,
}

/// Data of `tool_execution_start`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolExecutionStart<'a> {
    /// `tool_execution_start`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The client's own id of the call if it gave one, else the supervisor's.
    pub tool_call_id: &'a str,
    /// The tool.
    pub tool_name: &'a str,
    /// The arguments. Long arguments are cut.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub args: &'a RawValue,
    /// The caller, if it named itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<&'a ClientName>,
}

/// Data of `tool_execution_update`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolExecutionUpdate<'a> {
    /// `tool_execution_update`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// As in the start.
    pub tool_call_id: &'a str,
    /// The tool.
    pub tool_name: &'a str,
    /// As in the start.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub args: &'a RawValue,
    /// Start of the output. It grows with each update and never changes earlier text. Once it is full, updates leave
    /// it out. For clients that print the difference to the previous update.
    pub partial_result: ToolContent<'a, UpdateDetails>,
    /// Output since the last update, as a JSON string. For clients that show everything.
    #[schemars(with = "String")]
    pub delta: &'a RawValue,
}

/// Facts of an update in addition to the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateDetails {
    /// Bytes of output so far, both streams together.
    pub total_bytes: u64,
    /// Bytes since the last update that are missing before `delta`.
    pub omitted_bytes: u64,
}

/// Data of `tool_execution_end`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolExecutionEnd<'a> {
    /// `tool_execution_end`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// As in the start.
    pub tool_call_id: &'a str,
    /// The tool.
    pub tool_name: &'a str,
    /// The result. A long result is cut.
    pub result: ToolContent<'a, &'a super::ToolInfo>,
    /// Whether the tool failed.
    pub is_error: bool,
    /// Exit code of a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Milliseconds from the call's arrival in the supervisor to its end.
    pub duration_ms: u64,
    /// As in the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<&'a ClientName>,
}

/// Data of `extension_error` after a crash of a session's process.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessDeath<'a> {
    /// `extension_error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `daemon`.
    pub extension_path: &'static str,
    /// `process_death`.
    pub event: &'static str,
    /// A sentence.
    pub error: &'a str,
    /// Signal that killed the process, or null.
    pub signal: Option<i32>,
    /// Exit code of the process, or null.
    pub exit_code: Option<i32>,
    /// End of the process's stderr.
    pub stderr_tail: &'a str,
    /// The process that died.
    pub process: DeadProcess,
}

/// A process of a session.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeadProcess {
    /// The worker.
    Worker,
    /// Pi.
    Pi,
}

/// Data of `prompt_error`.
#[derive(Debug, Serialize)]
pub struct PromptError<'a> {
    /// `prompt_error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// A sentence.
    pub error: &'a str,
    /// Cause, if a client can act on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<super::ErrorCode>,
}
