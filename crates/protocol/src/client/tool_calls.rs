//! Tool calls and their results: `voice_tool_call`, `quack.tool` and `abort`. The parameters of `quack.tool` are in
//! `tool_params.rs`.

use super::ps::{CallInfo, RunningJob};
use crate::denial::Denial;
use crate::worker::ToolReport;
use crate::{CeilingKind, SessionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// `voice_tool_call` parameters. Every field takes any JSON value: wrong types are answered as
/// upstream answers them, not with a parse error.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VoiceToolCallParams {
    /// Echoed in the reply, left out there if absent here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<Value>,
    /// Tool name.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "String")]
    pub tool_name: Value,
    /// JSON text of the arguments.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "String")]
    pub arguments: Value,
    /// Session reference; the active session if absent or empty.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub session_id: Value,
    /// Must name the session's workspace, if given.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub workspace_path: Value,
    /// True: the call may only use tools that change nothing.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<bool>")]
    pub safe_mode: Value,
}

// `T` is the form of the texts, and `D` that of the structured result.
/// `quack.tool` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ToolResult")]
pub struct ToolResultOf<T, D> {
    /// The result as text for a model.
    #[schemars(with = "String")]
    pub text: T,
    /// Facts in addition to the text.
    #[serde(flatten)]
    pub info: ToolInfo,
    /// Structured result of tools that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<D>,
    /// For a call with `stream` whose command ran: the end of the text, which is not in its `tool_output` events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub closing: Option<T>,
}

/// `quack.tool` data as the supervisor writes it: the worker's JSON, unread. `text` has the same bytes as the string in
/// the reply of `voice_tool_call`.
pub type ToolData = ToolResultOf<Box<RawValue>, Box<RawValue>>;

/// `quack.tool` data as a client reads it.
pub type ToolResult = ToolResultOf<String, Value>;

/// `voice_tool_call` data.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct VoiceToolData {
    /// As in the request; absent if it was absent there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<Value>,
    /// The answer for a model. That of a tool that failed begins with `Error: `.
    #[schemars(with = "String")]
    pub result: Box<RawValue>,
    /// Reason and advice in plain words, for a failure whose text is fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub hint: Option<String>,
}

/// Facts in a reply of `quack.tool` in addition to the text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolInfo {
    /// The session that ran the call.
    pub session_id: String,
    /// Whether the tool failed.
    pub is_error: bool,
    /// Exit code of a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal that killed a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether the deadline stopped the call.
    pub timed_out: bool,
    /// Whether a client cancelled the call.
    pub aborted: bool,
    /// Ceiling that ended the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<CeilingKind>,
    /// Whether the worker died during the call. The call may have taken effect and was not retried.
    pub worker_died: bool,
    /// Whether the call was refused because the session was at its limit or was not ready in time.
    pub busy: bool,
    /// Whether the daemon has no such tool.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unknown_tool: bool,
    /// Whether the text lacks a part of the output.
    pub truncated: bool,
    /// Path of the file with the whole output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_output_path: Option<String>,
    /// Processes that were killed at the end of the call.
    pub background_ended: u32,
    /// Whether other processes still had the command's output open when its shell exited.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub output_open: bool,
    /// Processes that had the output open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub background_pids: Vec<u32>,
    /// Processes of the command that could not be killed.
    #[serde(skip_serializing_if = "is_zero")]
    pub survivors: u32,
    /// Reason and advice in plain words, for a failure whose text is fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether the hint adds to the text. Otherwise it says the same in plain words.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hint_adds: bool,
    /// Noticed denials of the confinement.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denials: Vec<Denial>,
    /// Changed files that other programs run or obey, each as one line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub audit: Vec<String>,
    /// User processor time of a command and of its waited-for children, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_ms: Option<u64>,
    /// System processor time of the command and those children, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_ms: Option<u64>,
    /// Largest resident memory of one of its processes, in KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rss_kb: Option<u64>,
    /// Milliseconds from the call's arrival in the supervisor to its end.
    pub duration_ms: u64,
}

impl ToolInfo {
    /// Builds the client's view of a worker's report.
    #[must_use]
    pub fn from_report(session_id: &SessionId, report: &ToolReport, duration_ms: u64) -> Self {
        Self {
            session_id: session_id.0.clone(),
            is_error: report.is_error,
            exit_code: report.exit_code,
            signal: report.signal,
            timed_out: report.timed_out,
            aborted: report.aborted,
            ceiling: report.ceiling,
            truncated: report.truncated,
            full_output_path: report.full_output_path.clone(),
            background_ended: report.background_ended,
            output_open: report.output_open,
            background_pids: report.background_pids.clone(),
            survivors: report.survivors,
            hint: report.hint.clone(),
            hint_adds: report.hint_adds,
            denials: report.denials.clone(),
            audit: report.audit.clone(),
            user_ms: report.user_ms,
            system_ms: report.system_ms,
            max_rss_kb: report.max_rss_kb,
            duration_ms,
            ..Self::default()
        }
    }
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// `abort` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AbortData {
    /// The session whose calls were cancelled.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// Number of calls that were cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<usize>,
    /// Whether the agent was at work, or a prompt waited for it. Its process may run without a turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<bool>,
    /// The calls that were cancelled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<CallInfo>,
    /// Background jobs, which go on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<RunningJob>,
}
