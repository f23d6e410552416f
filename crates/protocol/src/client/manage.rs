//! Looking at and changing workspaces and sessions: `workspaces`, `activate_session`, `get_state`,
//! `quack.session_new`, `quack.session_delete`.

use super::{AttachedSession, AttachedWorkspace, Interruption, RunningJob, StatusInfo};
use crate::denial::Denial;
use crate::policy::{Policy, PolicyPatch};
use crate::worker::SandboxReport;
use crate::{SessionId, WorkspaceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `workspaces` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspacesData {
    /// In stored order.
    pub workspaces: Vec<WorkspaceInfo>,
}

/// One line of `workspaces`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ActivateData {
    /// The session that is active now.
    pub session: ActivatedSession,
    /// Its workspace.
    pub workspace: AttachedWorkspace,
}

/// The session part of [`ActivateData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActivatedSession {
    /// Opaque id.
    pub id: SessionId,
    /// Display name.
    pub name: String,
    /// Its workspace.
    pub workspace_id: WorkspaceId,
}

/// `quack.find` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FindParams {
    /// Session reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Directory of the caller. Without `sessionId` its session is meant, and with it this directory decides between
    /// sessions of the same name. Creates no session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// `quack.find` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FindData {
    /// The session. Null if none is named, the directory has none, and none is active.
    pub session: Option<FoundInfo>,
}

/// The session in [`FindData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FoundInfo {
    /// Opaque id.
    pub session_id: SessionId,
    /// Its name, unique in its workspace only.
    pub session_name: String,
    /// Display label, such as `api/duck-1`. Every method accepts it as a reference.
    pub label: String,
    /// Absolute path, or `unknown`.
    pub workspace_path: String,
    /// What named the session.
    pub by: FindBy,
}

/// What named a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindBy {
    /// The reference.
    Reference,
    /// The directory, or the nearest workspace that contains it.
    Directory,
    /// Nothing: it is the active session.
    Active,
}

/// `get_state` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "StateData")]
pub struct StateDataOf<P> {
    /// The session.
    pub session_id: SessionId,
    /// Its name.
    pub session_name: String,
    /// Whether a process of the session is alive: its worker or its Pi.
    pub is_running: bool,
    /// Pi's own state, as it told it last; absent without a Pi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pi_state: Option<P>,
    /// The session's worker.
    pub worker: WorkerState,
    /// Only what changes nothing is allowed.
    pub safe_mode: bool,
    /// What it is doing.
    #[serde(flatten)]
    pub status: StatusInfo,
    /// What the last stop of the daemon cut short, if the session has done nothing since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Interruption>,
}

/// `get_state` data as a client of ours reads it.
pub type StateData = StateDataOf<Value>;

/// The worker in [`StateData`] and in the answer of `follow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// True if commands reach the machine's network; absent without a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
}

/// `quack.session_new` parameters: one more session for a directory.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
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

/// `quack.sandbox` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SandboxParams {
    /// `show` (also if absent), `set`, `denials`, `audit` or `explain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Session reference; the active session if neither this nor `path` is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Directory: its session is found or made, and does not become the active one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `explain`: the path that is asked about, absolute or relative to the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// `set`: for whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<PolicyScope>,
    /// `set`: forget first what was set before for the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<bool>,
    /// `set`: true ends the background jobs that keep a worker with the older policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_jobs: Option<bool>,
    /// `set`: what is different from now on.
    #[serde(flatten)]
    pub patch: PolicyPatch,
}

/// `quack.sandbox` data of `denials`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DenialsData {
    /// The session.
    pub session_id: SessionId,
    /// Its name.
    pub session_name: String,
    /// Display label, such as `api/duck-1`. Every method accepts it as a reference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// How many were noticed since the daemon started.
    pub total: u64,
    /// The last of them, oldest first.
    pub denials: Vec<TimedDenial>,
}

/// One line of [`DenialsData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimedDenial {
    /// When the call ended, ISO 8601 UTC.
    pub at: String,
    /// The tool that was called.
    pub tool: String,
    /// What was refused.
    #[serde(flatten)]
    pub denial: Denial,
}

/// For whom a policy is set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyScope {
    /// One session.
    #[default]
    Session,
    /// Every session of its workspace, unless it says otherwise itself.
    Workspace,
}

/// What a policy is made of, the weakest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyLayers {
    /// `[sandbox]` in the configuration.
    pub configuration: PolicyPatch,
    /// What is set for the workspace.
    pub workspace: PolicyPatch,
    /// What is set for the session.
    pub session: PolicyPatch,
    /// Safe mode: the profile is `read-only` whatever the others say.
    pub safe_mode: bool,
}

/// `quack.sandbox` data of `show` and `set`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxData {
    /// The session.
    pub session_id: SessionId,
    /// Its name.
    pub session_name: String,
    /// Display label, such as `api/duck-1`. Every method accepts it as a reference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Its workspace.
    pub workspace_path: String,
    /// What is wanted.
    pub policy: Policy,
    /// Where that comes from.
    pub layers: PolicyLayers,
    /// What its worker has in force; null without a worker.
    pub in_force: Option<SandboxReport>,
    /// True: the worker still has an older policy, until nothing runs in it.
    pub outdated: bool,
    /// Calls that run in a worker with an older policy.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls_running: usize,
    /// Background jobs that do.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub jobs_running: usize,
    /// The background jobs of `jobsRunning`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<RunningJob>,
}

/// `quack.session_delete` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionDeleteParams {
    /// Session reference. Never the active session by default: what is deleted is named.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "String")]
    pub session_id: Value,
    /// True: end its running calls and background jobs. Otherwise a session that has any is not deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

/// `quack.session_delete` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionDeleteData {
    /// What was deleted.
    pub session: AttachedSession,
    /// Display label, such as `api/duck-1`. Every method accepts it as a reference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Running calls that were ended with it.
    pub calls_ended: usize,
    /// Background jobs that were ended with it; absent if there was none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub jobs_ended: usize,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}
