//! How the children of the supervisor are: shared by `quack.ps` and `quack.tree`.

use crate::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a worker is in its life.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LifeInfo {
    /// `absent starting ready unresponsive draining backoff failed`.
    pub state: String,
    /// Milliseconds since it came into this state; absent if it was never in another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_ms: Option<u64>,
    /// Crashes since the daemon started.
    pub crashes: u32,
    /// Restarts that are not forgiven yet.
    pub restarts_in_window: u32,
    /// In `backoff`: milliseconds until it may be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_ms: Option<u64>,
    /// In `failed`: milliseconds until a call is reason enough to try again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forgiven_ms: Option<u64>,
    /// Why it last crashed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_cause: Option<String>,
    /// In `ready`: milliseconds since it last answered a heartbeat, or said hello.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_age_ms: Option<u64>,
}

/// What a session is doing.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    /// Nothing of it runs.
    #[default]
    Stopped,
    /// Something of it runs and has nothing to do.
    Idle,
    /// A call, a background job or a turn is under way.
    Working,
    /// Its agent has asked a person something.
    Waiting,
    /// Nothing is started for it before somebody asks again.
    Failed,
    /// A later version knows more.
    #[serde(other)]
    Unknown,
}

impl SessionStatus {
    /// The word for it.
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

/// What a session is doing, since when and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusInfo {
    /// What it is doing.
    pub status: SessionStatus,
    /// Since when, ISO 8601 UTC; absent if nothing has run since the daemon started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_since: Option<String>,
    /// Why, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status_why: String,
    /// Whether its processes stay however long nobody uses them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
}

/// How a child of the supervisor died.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeathInfo {
    /// When, ISO 8601 UTC.
    pub at: String,
    /// Which kind of child: a name of `quack.tree`.
    pub child: String,
    /// The session that it served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_name: Option<String>,
    /// Display label, such as `api/duck-1`. Every method accepts it as a reference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Process id of its monitor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Why, in words.
    pub cause: String,
    /// Its exit code, if it exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Milliseconds that it lived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lived_ms: Option<u64>,
    /// The end of what it wrote to stderr.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_words: String,
}

/// How late the timers of the actors' thread were in the last minute: the longer, the longer everybody waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LoopLag {
    /// The latest, in microseconds.
    pub max_us: u64,
    /// All but one in a hundred were not later than this, in microseconds.
    pub p99_us: u64,
    /// How many were looked at.
    pub samples: usize,
}

/// The machine slept, or the daemon was stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PauseInfo {
    /// When it was noticed, ISO 8601 UTC.
    pub at: String,
    /// `suspended`: the machine slept. `stopped`: this process did not run. `clock`: nothing of both, the wall
    /// clock was set, which changes nothing.
    pub kind: String,
    /// For how long, or by how much, in milliseconds.
    pub ms: i64,
}

/// `quack.tree` data.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeData {
    /// Process id of the supervisor.
    pub pid: u32,
    /// Milliseconds since it started.
    pub uptime: u64,
    /// Resident memory in KiB, where the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_kb: Option<u64>,
    /// How late its timers were.
    pub loop_lag: LoopLag,
    /// The last pauses, the newest last.
    pub pauses: Vec<PauseInfo>,
    /// Every kind of child, in the order of the start.
    pub children: Vec<TreeChild>,
    /// Deaths since the daemon started.
    pub deaths_total: u64,
    /// The last of them, the newest last.
    pub deaths: Vec<DeathInfo>,
}

/// One kind of child, and those that there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeChild {
    /// What its kind is promised.
    pub spec: SpecInfo,
    /// Processes of it: one for each session that has or had one since the daemon started.
    pub workers: Vec<TreeWorker>,
    /// Of a kind that does one thing and ends: how it went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errand: Option<ErrandInfo>,
    /// Of a thread: whether it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<bool>,
}

/// What a kind of child is promised. Times are milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SpecInfo {
    /// Its name.
    pub name: String,
    /// What it is there for.
    pub about: String,
    /// `process errand thread`.
    pub form: String,
    /// `permanent transient temporary escalate`.
    pub restart: String,
    /// Restarts allowed …
    pub intensity: u32,
    /// … in any stretch of this length.
    pub period_ms: u64,
    /// How long a failure lasts, whoever calls.
    pub forgiveness_ms: u64,
    /// The first delay before a restart; each is twice the one before.
    pub backoff_min_ms: u64,
    /// The longest.
    pub backoff_max_ms: u64,
    /// The most that a delay is off, in percent.
    pub jitter_percent: u32,
    /// How long a start may take, or all that an errand does.
    pub start_ms: u64,
    /// Time between being asked to end and being killed.
    pub shutdown_ms: u64,
    /// How it is asked whether it is alive; absent if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<HeartbeatInfo>,
    /// Causes after which no other start is tried.
    pub terminal: Vec<String>,
}

/// Intervals of a heartbeat, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HeartbeatInfo {
    /// While it has something to do.
    pub busy_ms: u64,
    /// While it has not.
    pub idle_ms: u64,
    /// Busy intervals of silence after which it gets no new work.
    pub missed: u32,
    /// Silence after which it is killed.
    pub kill_ms: u64,
}

/// One process of a kind that serves a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TreeWorker {
    /// The session.
    pub session_id: String,
    /// Its name.
    pub session_name: String,
    /// Display label, such as `api/duck-1`. Every method accepts it as a reference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Process id of the monitor, the supervisor's own child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor_pid: Option<u32>,
    /// Process id of the worker below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// When the process was started, ISO 8601 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Resident memory of the worker, and of Pi if it has one, in KiB, where the system tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_kb: Option<u64>,
    /// Where it is in its life.
    pub life: LifeInfo,
    /// Why it lives, or does not.
    pub why: String,
}

/// How a child that does one thing and ends has gone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ErrandInfo {
    /// Process id of its monitor, while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// When the last one was started, ISO 8601 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Milliseconds that the last one that has ended took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// How often it was started.
    pub runs: u32,
    /// How often it came to nothing.
    pub failures: u32,
    /// Why the last one did, if it did.
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
    /// False: let it go. True if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
}

/// `quack.pin` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PinData {
    /// The session.
    pub session_id: SessionId,
    /// Its name.
    pub session_name: String,
    /// Display label, such as `api/duck-1`. Every method accepts it as a reference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Whether it is pinned now.
    pub pinned: bool,
}

/// `quack.kill` data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KillData {
    /// The session.
    pub session_id: SessionId,
    /// Its name.
    pub session_name: String,
    /// Display label, such as `api/duck-1`. Every method accepts it as a reference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
}
