//! `quack.ps` and `quack.metrics`: the current state of the daemon and its workers.

use super::{
    ClientInfo, DeathInfo, DiskInfo, InterruptedSession, LifeInfo, LoopLag, PauseInfo, PiInfo,
    ProcessState, ServerInfo, StatusInfo,
};
use crate::SessionId;
use crate::policy::Profile;
use crate::state::is_false;
use crate::tiers::{Tier, known};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `quack.ps` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PsData {
    /// The daemon.
    pub supervisor: SupervisorInfo,
    /// One entry per session that has or had a worker since the daemon started.
    pub workers: Vec<WorkerInfo>,
    /// The last deaths of children, the newest last.
    #[serde(default)]
    pub deaths: Vec<DeathInfo>,
    /// Sessions whose work the last stop of the daemon interrupted and that have done nothing since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupted: Vec<InterruptedSession>,
    /// Connected clients that named themselves, at most 256, the first connected first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientInfo>,
    /// Number of connected clients that named themselves.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub named_clients: usize,
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
    /// Resident memory in KiB. Absent if the system does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_kb: Option<u64>,
    /// Open file descriptors. Absent if the system does not report them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<usize>,
    /// Clients disconnected because they read too slowly.
    pub slow_clients: u64,
    /// Stray processes that were killed after the exit of their worker.
    pub strays_killed: u64,
    /// Processes of commands that could not be killed.
    #[serde(default)]
    pub survivors: u64,
    /// Spill files deleted because of the limit on their total size.
    #[serde(default)]
    pub spills_deleted: u64,
    /// The disk of the state directory at the last check. Absent if the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskInfo>,
    /// Log lines that were lost, because they could not be written or the writer was too slow.
    #[serde(default)]
    pub log_lines_dropped: u64,
    /// Delay of the daemon's timers in the last minute.
    #[serde(default)]
    pub loop_lag: LoopLag,
    /// Deaths of children since the start.
    #[serde(default)]
    pub deaths_total: u64,
    /// Idle workers evicted since the start.
    #[serde(default)]
    pub evictions: u64,
    /// Reason for memory pressure; absent without it. Under pressure, idle workers are evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_pressure: Option<String>,
    /// Processor time of the daemon's process in milliseconds. Absent if the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Events of all sessions since the start, with or without a follower.
    #[serde(default)]
    pub events: u64,
    /// Command slots in use.
    #[serde(default)]
    pub places: PlacesInfo,
    /// The last suspend of the machine, or stop of the daemon's process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_pause: Option<PauseInfo>,
}

/// Command slots, which all sessions share, in [`SupervisorInfo`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacesInfo {
    /// Running commands.
    pub running: usize,
    /// Calls that wait for a command slot.
    pub waiting: usize,
    /// Number of command slots.
    pub max: usize,
    /// Running background jobs.
    pub jobs: usize,
}

/// Resource usage of a session's processes: its worker, its Pi and their descendants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageInfo {
    /// Number of processes.
    pub processes: u32,
    /// Sum of their resident memory in KiB. Shared memory is counted for each process.
    pub rss_kb: u64,
    /// Processor time of the processes and of their exited children, in milliseconds.
    pub cpu_ms: u64,
}

/// One worker in [`PsData`].
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerInfo {
    /// The session.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// Display label, such as `api/review`. quackd's own methods read it before any name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Absolute path of the session's workspace.
    pub workspace_path: String,
    /// State of the worker.
    pub state: ProcessState,
    /// Process id of the worker. Absent until the worker has sent its hello, and for a worker on another machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Process id of the monitor, the supervisor's direct child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor_pid: Option<u32>,
    /// Start time of this process, ISO 8601 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Crashes since the daemon started.
    pub restarts: u32,
    /// Confinement in force.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known")]
    #[schemars(with = "Option<String>")]
    pub tier: Option<Tier>,
    /// Name of the policy in force.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known")]
    #[schemars(with = "Option<String>")]
    pub policy: Option<Profile>,
    /// True if commands reach the machine's network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<bool>,
    /// True if commands reach the hosts that rules name, and no others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hosts: bool,
    /// Cause of the last crash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_death: Option<String>,
    /// Calls in flight.
    pub calls: Vec<CallInfo>,
    /// Running background jobs; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<RunningJob>,
    /// Listening servers of the session, at most [`crate::limits::MAX_SERVERS`], by port. Absent without any, and if
    /// commands have the machine's network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerInfo>,
    /// The session's Pi; absent if it never had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pi: Option<PiInfo>,
    /// Status of the session.
    #[serde(flatten)]
    pub status: StatusInfo,
    /// Reason why the worker runs, or does not. For display only.
    #[serde(default)]
    pub why: String,
    /// Name of the place where the worker runs, such as a host. Absent if that is this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Last round trip to the worker at `place`, in milliseconds, at least 1. Absent until it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    /// Resident memory of the worker in KiB. Absent if the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_kb: Option<u64>,
    /// Resource usage of all processes of the session. Absent if it has none, or if the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageInfo>,
    /// Idle time of the worker in milliseconds. Absent if the worker cannot be evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// Change that waits for calls or jobs of the worker. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingChange>,
    /// State of the worker.
    #[serde(default)]
    pub life: LifeInfo,
}

/// Change that a running worker does not have, such as a policy. It applies when calls and jobs of the worker have ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PendingChange {
    /// The change, in words.
    pub why: String,
    /// Running calls that keep the worker.
    pub calls: usize,
    /// Ids of the background jobs that keep the worker.
    pub jobs: Vec<String>,
    /// Commands that end them.
    pub remedy: String,
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
    /// Whether it has a terminal, which clients can attach to.
    #[serde(default, skip_serializing_if = "is_false")]
    pub terminal: bool,
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
    /// Deadline of the call in milliseconds.
    pub deadline_ms: u64,
    /// Id of the call in events. Absent if no event shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// `quack.metrics` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricsData {
    /// HTTP content type of [`MetricsData::text`].
    pub content_type: String,
    /// The daemon's counters, in the text format of Prometheus.
    pub text: String,
}

pub(super) fn is_zero(n: &usize) -> bool {
    *n == 0
}
