//! Following a session: the parameters and answer of `follow`, and the events that tools publish.
//!
//! An event is `{"event","sessionId","data","seq"}`. `seq` starts at 1 in each session and counts every
//! event of it; it starts again when the daemon does, which `epoch` tells. The names and shapes are the
//! agent's; keys of ours come beside them.

use crate::SessionId;
use crate::client::WorkerState;
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
    /// Replay what came after this number, if it is still kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_seq: Option<u64>,
    /// The run of the daemon that `since_seq` belongs to, as an earlier `follow` told it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
}

/// `follow` data. Pi's state is handed on as it is.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "FollowData")]
pub struct FollowDataOf<P> {
    /// The session.
    pub session_id: SessionId,
    /// Its name.
    pub session_name: String,
    /// Its workspace, or `unknown`.
    pub workspace_path: String,
    /// Whether a worker process of the session is alive.
    pub is_running: bool,
    /// Pi's own state; `null` without a Pi.
    pub session_state: Option<P>,
    /// The history file that the macOS app keeps.
    pub app_history_file: String,
    /// Whether it exists.
    pub app_history_exists: bool,
    /// Its size.
    pub app_history_size_bytes: u64,
    /// Number of the last event before this answer; the first event after it has a higher one.
    pub seq: u64,
    /// This run of the daemon.
    pub epoch: String,
    /// True: events between `sinceSeq` and `seq` are lost; what was known of the session is out of
    /// date, and what follows begins after `seq`.
    pub resync: bool,
    /// Events that are sent again before new ones.
    pub replayed: u64,
    /// The session's worker.
    pub worker: WorkerState,
}

/// `follow` data as a client of ours reads it.
pub type FollowData = FollowDataOf<Value>;

/// One event line as the supervisor writes it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventLine<'a, D> {
    /// The event's name: the `type` of its data.
    pub event: &'a str,
    /// The session.
    pub session_id: &'a SessionId,
    /// What happened.
    pub data: D,
    /// Counts the session's events.
    pub seq: u64,
}

/// One event that one client alone is told, as the supervisor writes it. It is none of the session's
/// events and has no number.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToldLine<'a, D> {
    /// The event's name.
    pub event: &'a str,
    /// The session it is about.
    pub session_id: &'a SessionId,
    /// What is told.
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

/// What a tool has said, with `details` of ours.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Shown{T}")]
pub struct ToolContent<'a, T> {
    /// At most one text block.
    pub content: Vec<TextBlock<'a>>,
    /// Facts besides the text.
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
    /// The arguments; long ones are cut.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub args: &'a RawValue,
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
    /// The beginning of the output: it grows with each update until it is full, and never changes
    /// what it said; then it is left out. For clients that print what is new in it.
    pub partial_result: ToolContent<'a, UpdateDetails>,
    /// What came since the last update, as a JSON string. For clients that show everything.
    #[schemars(with = "String")]
    pub delta: &'a RawValue,
}

/// What is told besides the text of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateDetails {
    /// Bytes of output until now, both streams together.
    pub total_bytes: u64,
    /// Bytes that came since the last update and are not in `delta`, before it.
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
    /// The answer; a long one is cut.
    pub result: ToolContent<'a, &'a super::ToolInfo>,
    /// The tool failed.
    pub is_error: bool,
    /// Exit code of a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Milliseconds from the call's arrival in the supervisor to its end.
    pub duration_ms: u64,
}

/// Data of `extension_error` when a session's process has died.
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
    /// The signal that ended it, or null.
    pub signal: Option<i32>,
    /// Its exit code, or null.
    pub exit_code: Option<i32>,
    /// Its last words.
    pub stderr_tail: &'a str,
}
