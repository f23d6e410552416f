//! Looking at and changing workspaces and sessions: `workspaces`, `activate_session`, `get_state`,
//! `quack.session_new`, `quack.session_delete`.

use super::{AttachedSession, AttachedWorkspace};
use crate::{SessionId, WorkspaceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `workspaces` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspacesData {
    /// In stored order.
    pub workspaces: Vec<WorkspaceInfo>,
}

/// One line of `workspaces`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceInfo {
    /// Opaque id.
    pub id: WorkspaceId,
    /// Absolute path.
    pub path: String,
    /// The session that was last attached or activated here.
    pub last_active_session_id: Option<SessionId>,
    /// How many sessions it has.
    pub session_count: usize,
    /// Its sessions, in stored order.
    pub sessions: Vec<WorkspaceSession>,
}

/// A session in [`WorkspaceInfo`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceSession {
    /// Opaque id.
    pub id: SessionId,
    /// Display name.
    pub name: String,
    /// Whether this is the active session.
    pub is_active: bool,
    /// Whether a worker process of the session is alive.
    pub is_running: bool,
    /// ISO 8601 UTC.
    pub last_active_at: String,
}

/// `activate_session` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivateData {
    /// The session that is active now.
    pub session: ActivatedSession,
    /// Its workspace.
    pub workspace: AttachedWorkspace,
}

/// The session part of [`ActivateData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActivatedSession {
    /// Opaque id.
    pub id: SessionId,
    /// Display name.
    pub name: String,
    /// Its workspace.
    pub workspace_id: WorkspaceId,
}

/// `get_state` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateData {
    /// The session.
    pub session_id: SessionId,
    /// Its name.
    pub session_name: String,
    /// Whether a worker process of the session is alive.
    pub is_running: bool,
    /// The session's worker.
    pub worker: WorkerState,
    /// Only what changes nothing is allowed.
    pub safe_mode: bool,
}

/// The worker in [`StateData`] and in the answer of `follow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerState {
    /// `absent starting ready busy unresponsive draining backoff failed`.
    pub state: String,
    /// The worker's process id; null if there is none.
    pub pid: Option<u32>,
    /// Workers of the session that died, over all runs of the daemon.
    pub restarts: u64,
    /// Confinement in force; null without a worker.
    pub tier: Option<String>,
    /// Name of the policy in force; null without a worker.
    pub policy: Option<String>,
}

/// `quack.session_new` parameters: one more session for a directory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionNewParams {
    /// Directory; its workspace is found or made. The daemon's own working directory if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The new session's name, unique in its workspace; `duck-<n>` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// True: make it the active session. Not by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activate: Option<bool>,
    /// True: the session only allows what does not change anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safe_mode: Option<bool>,
}

/// `quack.session_delete` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionDeleteParams {
    /// Session reference. Never the active session by default: what is deleted is named.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub session_id: Value,
    /// True: end its running calls and background jobs. Otherwise a session that has any is not deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

/// `quack.session_delete` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionDeleteData {
    /// What was deleted.
    pub session: AttachedSession,
    /// Running calls that were ended with it.
    pub calls_ended: usize,
    /// Background jobs that were ended with it; absent if there was none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub jobs_ended: usize,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}
