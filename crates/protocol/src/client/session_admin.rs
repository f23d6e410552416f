//! Showing and changing workspaces and sessions: `workspaces`, `activate_session`, `get_state`, `quack.session_new`,
//! `quack.session_delete`.

use super::ps::is_zero;
use super::{
    AttachedWorkspace, Interruption, PendingChange, ProcessState, RunningJob, ServerInfo,
    StatusInfo,
};
use crate::agent_options::AgentOptions;
use crate::approval::ScopedGrant;
use crate::credentials::UsableCredentials;
use crate::denial::Denial;
use crate::mcp::McpServer;
use crate::policy::{Policy, PolicyPatch, Profile};
use crate::state::is_false;
use crate::tiers::{Tier, known};
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
    /// Number of sessions in the workspace.
    pub session_count: usize,
    /// Sessions of the workspace, in stored order.
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
    /// The session's workspace.
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
    /// The session's workspace.
    pub workspace_id: WorkspaceId,
}

/// `quack.find` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FindParams {
    /// Session reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Directory of the caller. Without `sessionId` it selects the session of this directory. With `sessionId` it
    /// decides between sessions of the same name. Creates no session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// True: without `sessionId` only a session of the directory that no client has claimed or made for itself, and never
    /// the active one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own: Option<bool>,
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
    /// Name of the session, unique in its workspace only.
    pub session_name: String,
    /// Display label, such as `api/review`. quackd's own methods read it before any name.
    pub label: String,
    /// Absolute path, or `unknown`.
    pub workspace_path: String,
    /// Criterion that found the session.
    pub by: FindBy,
}

/// Criterion that found a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindBy {
    /// By the reference.
    Reference,
    /// By the directory, or by the nearest workspace that contains it.
    Directory,
    /// Neither was given: this is the active session.
    Active,
}

/// `get_state` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "StateData")]
pub struct StateDataOf<P> {
    /// The session.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// Whether a process of the session is alive: its worker or its Pi.
    pub is_running: bool,
    /// The state that Pi reported last. Absent without a Pi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pi_state: Option<P>,
    /// Counts, tokens and cost of the session. Absent without an agent that reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<P>,
    /// The agent that runs: `native` or `pi`. Absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// File with the conversation. Absent if there is none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pi_session_file: Option<String>,
    /// MCP servers that the agent could not use when it listed their tools: one line each, with the name, the reason and
    /// the file with the end of its stderr. Absent without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_problems: Vec<String>,
    /// The session's worker.
    pub worker: WorkerState,
    /// Whether the session may only use tools that change nothing.
    pub safe_mode: bool,
    /// Whether the session works in a private copy of the workspace.
    #[serde(default, skip_serializing_if = "is_false")]
    pub isolated: bool,
    /// Disk space of this copy without its checkpoints at the last sample, in bytes. Absent before the first sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_bytes: Option<u64>,
    /// Listening servers of the session, as in `quack.ps`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerInfo>,
    /// Status of the session.
    #[serde(flatten)]
    pub status: StatusInfo,
    /// Work that the last stop of the daemon interrupted, if the session has done nothing since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Interruption>,
}

/// `get_state` data as our client reads it.
pub type StateData = StateDataOf<Value>;

/// The worker in [`StateData`] and in the answer of `follow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerState {
    /// State of the worker.
    pub state: ProcessState,
    /// The worker's process id; null if there is none.
    pub pid: Option<u32>,
    /// Workers of the session that crashed, over all runs of the daemon.
    pub restarts: u64,
    /// Confinement in force; null without a worker.
    #[serde(default, deserialize_with = "known")]
    #[schemars(with = "Option<String>")]
    pub tier: Option<Tier>,
    /// Name of the policy in force; null without a worker.
    #[serde(default, deserialize_with = "known")]
    #[schemars(with = "Option<String>")]
    pub policy: Option<Profile>,
    /// True if commands reach the machine's network; absent without a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
    /// True if commands reach the hosts that rules name, and no others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hosts: bool,
    /// Change that waits for calls or jobs of the worker. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingChange>,
}

/// `quack.session_new` parameters: one more session for a directory.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionNewParams {
    /// Directory whose workspace is found or created. The daemon's own working directory if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The new session's name, unique in its workspace; `duck-<n>` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// True: make it the active session. False if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activate: Option<bool>,
    /// True: the session may only use tools that change nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub safe_mode: Option<bool>,
    /// Agent of the session: `native`, `pi` or `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Model of quackd's own agent, as `provider/model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Reference of a session that the new one continues: it gets the restrictions of that session. `*`: those of every
    /// session of the workspace, without their safe mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restrictions_of: Option<String>,
    /// Id of the conversation, as `sessionId` of the agent's state shows it: letters and digits, and `.`, `_` and `-`
    /// between them. A new id if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    /// True: the session works in a private copy of the workspace (`quack.isolated`). Only for local clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,
    /// Engine and target, such as `ssh:build1`: a private copy of the workspace is sent there, and the session works in
    /// it. Only for local clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_to: Option<String>,
}

/// `quack.session_set` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionSetParams {
    /// Session reference; the active session if absent or empty.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub session_id: Value,
    /// Agent of the session: `native`, `pi` or `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Model of quackd's own agent, as `provider/model`. Empty for the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// MCP servers that the session's own agent gets in addition to the configured ones, instead of those that were set
    /// before. Kept until the daemon stops, in memory only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<Vec<McpServer>>,
    /// Options of the agent, in place of earlier ones. Kept until the daemon stops, in memory only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_options: Option<AgentOptions>,
}

/// `quack.session_set` data: agent and model of the session now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSetData {
    /// The session.
    pub session_id: SessionId,
    /// The agent, if it is not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// The model, if it is not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// `quack.fork` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ForkParams {
    /// Session reference; the active session if absent or empty.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(with = "Option<String>")]
    pub session_id: Value,
    /// Id of a message of the user in the session file. The new session has the conversation before it. Absent for the
    /// whole conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry_id: Option<String>,
    /// Name of the new session, unique in its workspace; `duck-<n>` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// True: make it the active session. False if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activate: Option<bool>,
}

/// `quack.fork` data: the new session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForkData {
    /// The session.
    pub session_id: SessionId,
    /// Name of the new session.
    pub session_name: String,
    /// Session file of the new session.
    pub session_file: String,
    /// Text of the message at which the conversation was left, for another version of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Restrictions that the session has taken over, a sentence for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// `quack.sandbox` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SandboxParams {
    /// `show` (also if absent), `set`, `allow`, `revoke`, `network`, `presets`, `denials`, `audit` or `explain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Session reference. The active session if both this and `path` are absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Directory whose session is found or created. The session does not become the active one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `explain`: the path to explain, absolute or relative to the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// `explain`: the host to explain instead of a path, perhaps with a port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// `allow` and `revoke`: rules of hosts. `revoke` also takes ids of grants and uses of credentials. `presets`: names to
    /// show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<String>>,
    /// `allow`: uses of credentials, such as `push github.com/me/app`. `!` in front denies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Vec<String>>,
    /// `network`: only requests with a higher number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// `audit`: milliseconds since the epoch. Changes since then count too, also those before the start of the worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// `set`, `allow`, `revoke`: whether it is for the session, for its workspace or (not `set`) for all sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<PolicyScope>,
    /// `set`: true removes the earlier settings of the same scope first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<bool>,
    /// `set`: true stops the background jobs that keep a worker with the older policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_jobs: Option<bool>,
    /// `set`: the changes.
    #[serde(flatten)]
    pub patch: PolicyPatch,
}

/// `quack.sandbox` data of `denials`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DenialsData {
    /// The session.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// Display label, such as `api/review`. quackd's own methods read it before any name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Denials since the daemon started.
    pub total: u64,
    /// The last denials, oldest first.
    pub denials: Vec<TimedDenial>,
}

/// One line of [`DenialsData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimedDenial {
    /// When the call ended or the credential was refused, ISO 8601 UTC.
    pub at: String,
    /// The tool that was called.
    pub tool: String,
    /// The denied operation.
    #[serde(flatten)]
    pub denial: Denial,
    /// For a credential: the reason, and the command that allows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Scope of a policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyScope {
    /// One session.
    #[default]
    Session,
    /// Every session of the workspace without its own setting.
    Workspace,
    /// Every session.
    Always,
}

/// Layers of a policy, the weakest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyLayers {
    /// `[sandbox]` in the configuration.
    pub configuration: PolicyPatch,
    /// Settings of the workspace.
    pub workspace: PolicyPatch,
    /// Settings of the session.
    pub session: PolicyPatch,
    /// Safe mode: the profile is `read-only`, regardless of the other layers.
    pub safe_mode: bool,
}

/// `quack.sandbox` data of `show` and `set`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxData {
    /// The session.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// Display label, such as `api/review`. quackd's own methods read it before any name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Absolute path of the session's workspace.
    pub workspace_path: String,
    /// The policy that results from the layers.
    pub policy: Policy,
    /// True: the user has set the network to `off`, so hosts are denied without a question.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hosts_denied_unasked: bool,
    /// The layers of the policy.
    pub layers: PolicyLayers,
    /// Grants and denials of the user beyond the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<ScopedGrant>,
    /// Policy and confinement of the running worker. Null without a worker.
    pub in_force: Option<SandboxReport>,
    /// Credentials of the user that commands of the running worker can ask to use. Absent without a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<UsableCredentials>,
    /// True: the worker keeps an older policy until its calls and jobs have finished.
    pub outdated: bool,
    /// Calls that run in a worker with an older policy.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls_running: usize,
    /// Background jobs that run in a worker with an older policy.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub jobs_running: usize,
    /// The background jobs of `jobsRunning`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<RunningJob>,
    /// `set` and `allow`: answers of the user's tools that are missing, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}
