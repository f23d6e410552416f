//! Prompts and answers for a session's Pi: `say`, `extension_ui_response`, and Pi's entry in `quack.ps`.

use super::{LifeInfo, ProcessState};
use crate::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// `say` parameters. Every field takes any JSON value, as upstream does.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SayParams {
    /// The prompt.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "String")]
    pub message: Value,
    /// Session reference; the active session if absent or empty.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub session_id: Value,
    /// Truthy: send the prompt to Pi, even if a voice client owns the session.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<bool>")]
    pub prefer_pi: Value,
    /// Directory of the user, an absolute path in the workspace, for quackd's own agent: commands run there, and
    /// relative paths of tools start there. Absent: the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// `say` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SayData {
    /// The session.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// Number of the session's last event when Pi accepted the prompt. The events of its turn have higher numbers.
    /// Absent if the prompt went to a voice client or was refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seq: Option<u64>,
    /// Id of the prompt's turn, which its events carry. Absent like `seq`, and if a command of an extension handled the
    /// prompt without a turn.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub turn: Option<u64>,
}

/// `quack.agent` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentParams {
    /// Session reference; the active session if absent or empty.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub session_id: Value,
    /// A command of Pi's protocol: an object with `type` and the members of that command.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub command: Value,
}

/// `quack.agent` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AgentData {
    /// Data of Pi's response. Absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub data: Option<Box<RawValue>>,
}

/// `extension_ui_response` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UiResponseParams {
    /// Id of the `extension_ui_request`.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "String")]
    pub id: Value,
    /// Session reference; the active session if absent or empty.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub session_id: Value,
    /// The selected or typed answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub value: Option<Value>,
    /// Answer to a yes-or-no question.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<bool>")]
    pub confirmed: Option<Value>,
    /// True: the dialog was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<bool>")]
    pub cancelled: Option<Value>,
    /// True, about a permission: the user of this client made no decision. The question stays open for other clients that can answer,
    /// and ends without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dismissed: Option<bool>,
}

/// `extension_ui_response` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UiResponseData {
    /// The session.
    pub session_id: SessionId,
}

/// A session's Pi in `quack.ps`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PiInfo {
    /// Whether the agent is quackd's own, and not Pi.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub native: bool,
    /// State of Pi's worker.
    pub state: ProcessState,
    /// Whether a turn is in progress or a request waits.
    pub busy: bool,
    /// Process id of Pi.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Process id of Pi's worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_pid: Option<u32>,
    /// Process id of the monitor, the supervisor's direct child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor_pid: Option<u32>,
    /// Start time of this process, ISO 8601 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Deaths since the daemon started.
    pub restarts: u32,
    /// Cause of the last crash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_death: Option<String>,
    /// Resident memory of Pi's own process in KiB. Absent if the system does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_kb: Option<u64>,
    /// State of Pi's worker.
    pub life: LifeInfo,
    /// Reason why Pi runs, or does not. For display only.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}
