//! Upstream's methods that find and list sessions: `attach` and `sessions`.

use super::lifecycle::StatusInfo;
use super::ps::{WorkerInfo, is_zero};
use crate::state::is_false;
use crate::{SessionId, WorkspaceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `attach` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachParams {
    /// Directory; the daemon's own working directory if absent.
    // Accepts any JSON value, so that a wrong type gets its own error text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub path: Option<Value>,
    /// False: find or create the session without making it the active one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activate: Option<bool>,
    /// True: the session may only use tools that change nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safe_mode: Option<bool>,
    /// True: only a session that no client has claimed or made for itself. Created if the directory has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<bool>,
}

/// `attach` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttachData {
    /// The workspace.
    pub workspace: AttachedWorkspace,
    /// The session.
    pub session: AttachedSession,
    /// Display label, such as `api/review`. Absent in `attach`, which replies as upstream does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Reason why the workspace is the directory itself and not its repository, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The workspace part of [`AttachData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttachedWorkspace {
    /// Opaque id.
    pub id: WorkspaceId,
    /// Absolute path.
    pub path: String,
}

/// The session part of [`AttachData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttachedSession {
    /// Opaque id.
    pub id: SessionId,
    /// Display name.
    pub name: String,
}

/// `sessions` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionsParams {
    /// Any truthy value lists every session.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<bool>")]
    pub all: Value,
    /// Lists the sessions of this workspace id.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub workspace_id: Value,
}

/// `sessions` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SessionsData {
    /// In stored order.
    pub sessions: Vec<SessionInfo>,
}

/// `quack.session_rows` parameters.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionRowsParams {
    /// Revision of the client's rows, from the last reply on this connection. The reply has the changes since then, and
    /// waits up to 25 s for one. Absent, or another one: the reply has all rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
}

/// `quack.session_rows` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SessionRowsData {
    /// Revision of the client's rows with this reply.
    pub revision: u64,
    /// True: the client drops its other rows.
    pub whole: bool,
    /// New rows, and rows that differ in more than ages.
    pub rows: Vec<SessionRow>,
    /// Deleted sessions.
    pub gone: Vec<SessionId>,
}

/// A session with its processes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionRow {
    /// The session.
    #[serde(flatten)]
    pub session: SessionInfo,
    /// Last line of a call's output or of the agent's text: at most 120 characters, none of them unsafe. Absent if there
    /// was none since the daemon started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_line: Option<String>,
    /// Worker of the session. Absent while no process runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerInfo>,
}

/// One line of `sessions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionInfo {
    /// Opaque id.
    pub id: SessionId,
    /// Display name.
    pub name: String,
    /// Absolute path, or `unknown`.
    pub workspace_path: String,
    /// Whether this is the active session.
    pub is_active: bool,
    /// Whether a worker process of the session is alive.
    pub is_running: bool,
    /// ISO 8601 UTC.
    pub last_active_at: String,
    /// Status of the session.
    #[serde(flatten)]
    pub status: StatusInfo,
    /// Display label, such as `api/review`. quackd's own methods read it before any name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Whether the session works in a private copy of the workspace.
    #[serde(default, skip_serializing_if = "is_false")]
    pub isolated: bool,
    /// Machine to which that copy was sent, such as `build1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// `quack.session_delete` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionDeleteParams {
    /// Session reference. Required: the active session is not the default.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "String")]
    pub session_id: Value,
    /// True: stop the running calls and background jobs. Otherwise a session that has any is not deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

/// `quack.session_delete` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionDeleteData {
    /// The deleted session.
    pub session: AttachedSession,
    /// Display label, such as `api/review`. quackd's own methods read it before any name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Running calls that the deletion stopped.
    pub calls_ended: usize,
    /// Background jobs that the deletion stopped; absent if there was none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub jobs_ended: usize,
    /// Note for the user about things that stay on another machine, with the command that deletes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
