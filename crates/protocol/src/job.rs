//! Background jobs as the worker reports them. Re-exported by [`crate::worker`], whose frames have them.

use crate::CeilingKind;
use crate::denial::Denial;
use crate::terminal::CellSize;
use serde::{Deserialize, Serialize};

/// A running background job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInfo {
    /// Unique within the worker, at most [`crate::limits::MAX_JOB_ID_BYTES`].
    pub id: String,
    /// The first line of its command, at most [`crate::limits::MAX_JOB_COMMAND_BYTES`].
    pub command: String,
    /// Size of its terminal when it was started. `None`: it has no terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<CellSize>,
}

/// A background job that has exited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedJob {
    /// The job.
    pub info: JobInfo,
    /// Exit code of its command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal that killed its command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether its time limit stopped it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// Whether `job_kill` stopped it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aborted: bool,
    /// Ceiling that ended its command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<CeilingKind>,
    /// Run time of the job, in milliseconds.
    pub duration_ms: u64,
    /// Noticed denials of the confinement, at most [`crate::shorten::MAX_LISTED`].
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "crate::shorten::first_few"
    )]
    pub denials: Vec<Denial>,
}
