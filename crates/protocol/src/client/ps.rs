//! `quack.ps` and `quack.metrics`: the daemon and its workers as they are now.

use super::{
    DeathInfo, DiskInfo, InterruptedSession, LifeInfo, LoopLag, PauseInfo, PiInfo, StatusInfo,
};
use crate::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `quack.ps` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PsData {
    /// The daemon.
    pub supervisor: SupervisorInfo,
    /// One entry per session that has or had a worker since the daemon started.
    pub workers: Vec<WorkerInfo>,
    /// The last deaths of children, the newest last.
    #[serde(default)]
    pub deaths: Vec<DeathInfo>,
    /// Sessions whose work the last stop of the daemon cut short and that have done nothing since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupted: Vec<InterruptedSession>,
}

/// The daemon in [`PsData`].
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupervisorInfo {
    /// Process id.
    pub pid: u32,
    /// Program version.
    pub version: String,
    /// ISO 8601 UTC.
    pub started_at: String,
    /// Milliseconds since the start.
    pub uptime: u64,
    /// The socket's path.
    pub socket: String,
    /// The state directory.
    pub state_dir: String,
    /// Clients connected.
    pub clients: usize,
    /// Sessions known.
    pub sessions: usize,
    /// Resident memory in KiB, where the system tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_kb: Option<u64>,
    /// Open file descriptors, where the system tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<usize>,
    /// Clients disconnected because they did not read.
    pub slow_clients: u64,
    /// Stray processes that had to be killed after a worker was gone.
    pub strays_killed: u64,
    /// Processes of commands that could not be ended.
    #[serde(default)]
    pub survivors: u64,
    /// Files with long outputs that were deleted because all of them had too many bytes.
    #[serde(default)]
    pub spills_deleted: u64,
    /// The disk of the state directory as it was at the last look, where the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskInfo>,
    /// Lines that are missing in the log, because they could not be written or not in time.
    #[serde(default)]
    pub log_lines_dropped: u64,
    /// How late timers of the daemon were in the last minute.
    #[serde(default)]
    pub loop_lag: LoopLag,
    /// Deaths of children since the start.
    #[serde(default)]
    pub deaths_total: u64,
    /// Workers that were ended because nobody used them, since the start.
    #[serde(default)]
    pub evictions: u64,
    /// Whether memory is short, so that workers without use are ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_pressure: Option<String>,
    /// Processor time of the daemon itself in milliseconds, where the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Events of all sessions since the start, whether somebody followed or not.
    #[serde(default)]
    pub events: u64,
    /// Places for commands.
    #[serde(default)]
    pub places: PlacesInfo,
    /// The last pause: the machine slept, or the daemon was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_pause: Option<PauseInfo>,
}

/// Places for commands, which all sessions share, in [`SupervisorInfo`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacesInfo {
    /// Commands that run.
    pub running: usize,
    /// Calls that wait for a place.
    pub waiting: usize,
    /// Commands that may run.
    pub max: usize,
    /// Background jobs that run.
    pub jobs: usize,
}

/// What the processes of a session use: its worker, its Pi, and everything below them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageInfo {
    /// How many there are.
    pub processes: u32,
    /// Their resident memory in KiB; what they share is counted for each.
    pub rss_kb: u64,
    /// Their processor time and that of their children that have ended, in milliseconds.
    pub cpu_ms: u64,
}

/// One worker in [`PsData`].
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerInfo {
    /// The session.
    pub session_id: SessionId,
    /// Its name.
    pub session_name: String,
    /// Display label, such as `api/duck-1`. Every method accepts it as a reference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Its workspace.
    pub workspace_path: String,
    /// `absent starting ready busy unresponsive draining backoff failed`.
    pub state: String,
    /// The worker's process id, once it said hello.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Process id of the monitor above it, the supervisor's direct child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor_pid: Option<u32>,
    /// When this process was started, ISO 8601 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Crashes since the daemon started.
    pub restarts: u32,
    /// Confinement in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Name of the policy in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// True if commands reach the machine's network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
    /// Why the last worker ended, if it did not end well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_death: Option<String>,
    /// Calls in flight.
    pub calls: Vec<CallInfo>,
    /// Background jobs that run; absent if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<RunningJob>,
    /// The session's Pi; absent if it never had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pi: Option<PiInfo>,
    /// What the session is doing.
    #[serde(flatten)]
    pub status: StatusInfo,
    /// Why its worker lives, or does not, in words.
    #[serde(default)]
    pub why: String,
    /// Resident memory of the worker in KiB, where the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_kb: Option<u64>,
    /// What all processes of the session use, where the system tells; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageInfo>,
    /// Milliseconds without use, of a worker that could be ended for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// Where the worker is in its life.
    #[serde(default)]
    pub life: LifeInfo,
}

/// One background job in [`WorkerInfo`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningJob {
    /// The job's id in its session.
    pub job_id: String,
    /// The first line of its command.
    pub command: String,
    /// Milliseconds since it was started.
    pub elapsed_ms: u64,
}

/// One call in flight in [`WorkerInfo`].
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallInfo {
    /// The supervisor's id of the call.
    pub call_id: String,
    /// Tool name.
    pub tool: String,
    /// Milliseconds since it arrived.
    pub elapsed_ms: u64,
    /// Its deadline in milliseconds.
    pub deadline_ms: u64,
}

/// `quack.metrics` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricsData {
    /// What [`MetricsData::text`] is, as HTTP names it.
    pub content_type: String,
    /// The daemon's counters, as Prometheus reads them.
    pub text: String,
}
