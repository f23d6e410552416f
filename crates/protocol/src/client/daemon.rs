//! The daemon as a program: `quack.daemon`, `quack.restart`, and what a stop of it cut short.

use crate::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `quack.daemon` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonData {
    /// Its version.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// When it started, ISO 8601 UTC.
    pub started_at: String,
    /// The service manager that started it, `systemd` or `launchd`; absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// Whether the service manager keeps the socket: who connects to it has the daemon started.
    pub socket_activated: bool,
    /// The file that it was started from.
    pub executable: ExecutableInfo,
    /// What a restart would have to wait for.
    pub waits_for: Vec<UnfinishedWork>,
    /// Sessions whose work the last stop cut short and that have done nothing since.
    pub interrupted: Vec<InterruptedSession>,
}

/// The daemon's executable in [`DaemonData`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutableInfo {
    /// Its path.
    pub path: String,
    /// What stands there by now.
    pub state: ExecutableState,
}

/// What stands at the path that the daemon was started from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ExecutableState {
    /// The program that runs.
    Current,
    /// Another one: it was upgraded, or went back.
    Replaced,
    /// Nothing.
    Deleted,
    /// Nobody can tell.
    Unknown,
}

/// `quack.restart` parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RestartParams {
    /// True: restart also if something is at work. Calls get the grace of a stop, then they are cut short.
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
    /// Whether the daemon is on its way out. If not it is as before, and `waitsFor` says why.
    pub restarting: bool,
    /// Who starts the next one, `systemd` or `launchd`; absent: whoever asked, or the next verb.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// What is at work.
    pub waits_for: Vec<UnfinishedWork>,
}

/// Something that is at work in a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnfinishedWork {
    /// The session.
    pub session_id: SessionId,
    /// Its name.
    pub session_name: String,
    /// Display label, such as `api/duck-1`. Every method accepts it as a reference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// What kind of work it is.
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

/// What a stop of the daemon cut short in a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Interruption {
    /// When, ISO 8601 UTC.
    pub at: String,
    /// What the daemon was asked for: `restart` or `stop`.
    pub by: String,
    /// What was at work: tools of calls, background jobs, a turn. It may have run; it was not retried.
    pub work: Vec<String>,
}

/// An [`Interruption`] with its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterruptedSession {
    /// The session.
    pub session_id: SessionId,
    /// Its name, as it was then.
    pub session_name: String,
    /// Display label, such as `api/duck-1`. Every method accepts it as a reference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// What happened.
    #[serde(flatten)]
    pub interruption: Interruption,
}
