//! Limits of background jobs.

use super::tools::{MAX_OUTPUT_BYTES, MAX_SPILL_BYTES};
use std::time::Duration;

/// Jobs of one session that run at the same time; one more is refused.
pub const MAX_JOBS_PER_SESSION: usize = 8;

/// Jobs of all sessions that run at the same time; one more is refused.
pub const MAX_JOBS: usize = 128;

/// Exited jobs of one session that are kept. The oldest is dropped first, with its file.
pub const MAX_ENDED_JOBS: usize = 32;

/// Default and longest running time of a job. Such a job was probably forgotten by the user.
pub const MAX_JOB_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Newest bytes of a running job's output that are kept in memory. More than the bytes in flight to the job's file.
pub const JOB_MEMORY_BYTES: usize = 1024 * 1024;

/// Like [`JOB_MEMORY_BYTES`], for an exited job whose file is incomplete.
pub const ENDED_JOB_MEMORY_BYTES: usize = MAX_OUTPUT_BYTES;

/// Total size of the files of exited jobs, in bytes. The oldest is deleted first. The newest always fits.
pub const MAX_ENDED_JOBS_BYTES: u64 = 8 * MAX_SPILL_BYTES;

/// Longest id of a job, in bytes.
pub const MAX_JOB_ID_BYTES: usize = 32;

/// Longest text that represents a job's command in lists, in bytes.
pub const MAX_JOB_COMMAND_BYTES: usize = 200;

/// Job reports that a worker may send for each call: one for the start of a job, one for its exit.
pub const JOB_REPORTS_PER_CALL: u32 = 2;

/// Job reports that a worker may have saved up. Covers the exits of all running jobs, the jobs that calls in flight may
/// start and end, and a few more.
pub const MAX_JOB_REPORTS: u32 = 80;
