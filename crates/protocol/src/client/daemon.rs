//! The daemon as a program: `ping`, `quack.daemon`, `quack.restart`, and the work that a stop interrupted.

use crate::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `ping` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PingData {
    /// The program's version.
    pub version: String,
    /// Milliseconds since the daemon started.
    pub uptime: u64,
    /// Clients connected.
    pub clients: usize,
    /// The daemon's process id.
    pub pid: u32,
    /// When the daemon started, ISO 8601 UTC.
    pub started_at: String,
    /// Version of this wire: 1 today.
    pub protocol: u32,
    /// Build description: profile and target.
    pub build: String,
}

/// `quack.daemon` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonData {
    /// Version of the program.
    pub version: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// When it started, ISO 8601 UTC.
    pub started_at: String,
    /// The service manager that started it, `systemd` or `launchd`; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// Whether the service manager keeps the socket open. A connection then starts the daemon.
    pub socket_activated: bool,
    /// The file that the daemon was started from.
    pub executable: ExecutableInfo,
    /// Work that a restart would wait for.
    pub waits_for: Vec<UnfinishedWork>,
    /// Sessions whose work the last stop interrupted and that have done nothing since.
    pub interrupted: Vec<InterruptedSession>,
}

/// The daemon's executable in [`DaemonData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutableInfo {
    /// Path of the executable.
    pub path: String,
    /// State of the file at this path now.
    pub state: ExecutableState,
}

/// State of the file at the path that the daemon was started from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ExecutableState {
    /// The running program.
    Current,
    /// Another program: an upgrade or a downgrade.
    Replaced,
    /// The file no longer exists.
    Deleted,
    /// The state cannot be determined.
    Unknown,
}

/// `quack.restart` parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RestartParams {
    /// True: restart even if there is work in progress. Calls get the grace of a stop, then they are interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// True: the client starts the next daemon itself and has checked the configuration that it will read. Ignored
    /// if a service manager starts the next daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_checked: Option<bool>,
}

/// `quack.restart` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestartData {
    /// Whether the daemon is shutting down. Otherwise it keeps running, and `waitsFor` lists the reasons.
    pub restarting: bool,
    /// Service manager that starts the next daemon, `systemd` or `launchd`. If absent, the client that sent the request
    /// or the next subcommand of `quack` starts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// Work in progress.
    pub waits_for: Vec<UnfinishedWork>,
}

/// Work in progress in a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnfinishedWork {
    /// The session.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// Display label, such as `api/review`. quackd's own methods read it before any name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Kind of the work.
    pub kind: WorkKind,
    /// The tool of a call, the id and command of a background job, `Pi` of a turn.
    pub what: String,
    /// Milliseconds since it began, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_ms: Option<u64>,
}

/// Kinds of [`UnfinishedWork`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WorkKind {
    /// A tool call.
    Call,
    /// A background job.
    Job,
    /// A turn of the session's Pi.
    Turn,
}

/// Work in a session that a stop of the daemon interrupted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Interruption {
    /// Time of the stop, ISO 8601 UTC.
    pub at: String,
    /// Request that stopped the daemon: `restart` or `stop`.
    pub by: String,
    /// The interrupted work: tools of calls, background jobs, a turn. It may have taken effect and was not retried.
    pub work: Vec<String>,
}

/// An [`Interruption`] with its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterruptedSession {
    /// The session.
    pub session_id: SessionId,
    /// Name of the session at that time.
    pub session_name: String,
    /// Display label, such as `api/review`. quackd's own methods read it before any name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The interrupted work and its reason.
    #[serde(flatten)]
    pub interruption: Interruption,
}
