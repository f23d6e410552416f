//! State of the supervisor's children, shared by `quack.ps` and `quack.tree`.

use crate::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a worker process.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ProcessState {
    /// No process runs.
    Absent,
    /// The process has not sent its hello.
    Starting,
    /// The process waits for work.
    Ready,
    /// The process runs calls.
    Busy,
    /// The process does not answer heartbeats.
    Unresponsive,
    /// The process was asked to exit.
    Draining,
    /// The process crashed and may start again soon.
    Backoff,
    /// The process starts again only on demand.
    Failed,
    /// A state that a later version introduced, or none.
    #[default]
    #[serde(other)]
    Unknown,
}

impl ProcessState {
    /// The states of this version.
    pub const ALL: [Self; 8] = [
        Self::Absent,
        Self::Starting,
        Self::Ready,
        Self::Busy,
        Self::Unresponsive,
        Self::Draining,
        Self::Backoff,
        Self::Failed,
    ];

    /// Returns the word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Busy => "busy",
            Self::Unresponsive => "unresponsive",
            Self::Draining => "draining",
            Self::Backoff => "backoff",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// State of a worker, its crashes and its backoff.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LifeInfo {
    /// State of the process.
    pub state: ProcessState,
    /// Milliseconds since the last change of state. Absent if the state has never changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_ms: Option<u64>,
    /// Crashes since the daemon started.
    pub crashes: u32,
    /// Restarts that count against the restart intensity.
    pub restarts_in_window: u32,
    /// In `backoff`: milliseconds until the next start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_ms: Option<u64>,
    /// In `failed`: milliseconds until a call may start it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forgiven_ms: Option<u64>,
    /// Cause of the last crash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_cause: Option<String>,
    /// In `ready`: milliseconds since the last heartbeat reply or hello.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_age_ms: Option<u64>,
}

/// Status of a session.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    /// No process of the session runs.
    #[default]
    Stopped,
    /// A process of the session runs and has nothing to do.
    Idle,
    /// A call, a background job or a turn is in progress.
    Working,
    /// The session's agent waits for the user's answer.
    Waiting,
    /// No process starts before the next request.
    Failed,
    /// A status that a later version introduced.
    #[serde(other)]
    Unknown,
}

impl SessionStatus {
    /// Returns the word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Idle => "idle",
            Self::Working => "working",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// Status of a session, its start time and its reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusInfo {
    /// Status of the session.
    pub status: SessionStatus,
    /// Time of the last change, ISO 8601 UTC. Absent if nothing has run since the daemon started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_since: Option<String>,
    /// Reason, for display only.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status_why: String,
    /// Exempts the session's processes from eviction.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
}

/// Death of a child of the supervisor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeathInfo {
    /// Time of death, ISO 8601 UTC.
    pub at: String,
    /// Kind of the child: a name of `quack.tree`.
    pub child: String,
    /// The session that the child served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Name of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_name: Option<String>,
    /// Display label, such as `api/review`. quackd's own methods read it before any name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Process id of the child's monitor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Cause, for display only.
    pub cause: String,
    /// Exit code, if the child exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal that killed the child, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Running time of the child in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lived_ms: Option<u64>,
    /// The end of the child's stderr.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_words: String,
}

/// Delay of timers on the actors' thread in the last minute. All requests wait while a timer is late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LoopLag {
    /// Longest delay, in microseconds.
    pub max_us: u64,
    /// 99th percentile of the delays, in microseconds.
    pub p99_us: u64,
    /// Number of measured delays.
    pub samples: usize,
}

/// Kind of a pause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PauseKind {
    /// The machine was suspended.
    Suspended,
    /// The daemon's process did not run.
    Stopped,
    /// Neither; the wall clock was set, which has no effect.
    #[default]
    #[serde(other)]
    Clock,
}

/// A suspend of the machine, or a stop of the daemon's process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PauseInfo {
    /// Time of detection, ISO 8601 UTC.
    pub at: String,
    /// Cause of the pause.
    pub kind: PauseKind,
    /// Duration, or step of the wall clock, in milliseconds.
    pub ms: i64,
}

/// `quack.tree` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeData {
    /// Process id of the supervisor.
    pub pid: u32,
    /// Milliseconds since the supervisor started.
    pub uptime: u64,
    /// Resident memory in KiB. Absent if the system does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_kb: Option<u64>,
    /// Delay of the supervisor's timers.
    pub loop_lag: LoopLag,
    /// The last pauses, the newest last.
    pub pauses: Vec<PauseInfo>,
    /// Every kind of child, in the order of the start.
    pub children: Vec<TreeChild>,
    /// Deaths since the daemon started.
    pub deaths_total: u64,
    /// The last deaths, the newest last.
    pub deaths: Vec<DeathInfo>,
}

/// One kind of child and its processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeChild {
    /// Restart rules of the kind.
    pub spec: SpecInfo,
    /// Processes of the kind: one for each session that has had one since the daemon started.
    pub workers: Vec<TreeWorker>,
    /// Only for a one-shot kind: its runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errand: Option<ErrandInfo>,
    /// Only for a thread: whether it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<bool>,
}

/// Restart rules of a kind of child. Times are in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SpecInfo {
    /// Unique among the kinds.
    pub name: String,
    /// Purpose of the kind, for display.
    pub about: String,
    /// `process errand thread`.
    pub form: String,
    /// `permanent transient temporary escalate`.
    pub restart: String,
    /// Restarts allowed within `periodMs`.
    pub intensity: u32,
    /// Length of the period of `intensity`.
    pub period_ms: u64,
    /// Time in `failed` before a call may start the child again.
    pub forgiveness_ms: u64,
    /// First delay before a restart. Each further delay is twice the previous one.
    pub backoff_min_ms: u64,
    /// Longest delay before a restart.
    pub backoff_max_ms: u64,
    /// Largest random change of a delay, in percent.
    pub jitter_percent: u32,
    /// Timeout of a start, or of the whole run of a one-shot child.
    pub start_ms: u64,
    /// Time between the request to stop and the kill.
    pub shutdown_ms: u64,
    /// Intervals of the heartbeat; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<HeartbeatInfo>,
    /// Causes after which the child is not started again.
    pub terminal: Vec<String>,
}

/// Intervals of a heartbeat, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HeartbeatInfo {
    /// Interval while the child is busy.
    pub busy_ms: u64,
    /// Interval while the child is idle.
    pub idle_ms: u64,
    /// Missed busy intervals after which the child gets no new work.
    pub missed: u32,
    /// Time without a heartbeat after which the child is killed.
    pub kill_ms: u64,
}

/// One process of a kind that serves a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TreeWorker {
    /// The session.
    pub session_id: String,
    /// Name of the session.
    pub session_name: String,
    /// Display label, such as `api/review`. quackd's own methods read it before any name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Process id of the monitor, the supervisor's direct child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor_pid: Option<u32>,
    /// Process id of the worker, the monitor's child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Start time of the process, ISO 8601 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Resident memory of the worker, and of Pi if it has one, in KiB. Absent if the system does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_kb: Option<u64>,
    /// State of the worker.
    pub life: LifeInfo,
    /// Reason why the worker runs, or does not.
    pub why: String,
}

/// Runs and failures of a one-shot child.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ErrandInfo {
    /// Process id of the child's monitor, while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Start time of the last run, ISO 8601 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Duration of the last finished run, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// Number of starts.
    pub runs: u32,
    /// Number of failed runs.
    pub failures: u32,
    /// Cause of the failure of the last run, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_cause: Option<String>,
}

/// `quack.pin` parameters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PinParams {
    /// Session reference; the active session if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// False: unpin. True if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
}

/// `quack.pin` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PinData {
    /// The session.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// Display label, such as `api/review`. quackd's own methods read it before any name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Whether the session is pinned now.
    pub pinned: bool,
}

/// `quack.kill` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KillData {
    /// The session.
    pub session_id: SessionId,
    /// Name of the session.
    pub session_name: String,
    /// Display label, such as `api/review`. quackd's own methods read it before any name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
}
