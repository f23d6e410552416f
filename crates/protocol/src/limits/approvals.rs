//! Limits of the questions to the user and of the grants.

use std::time::Duration;

/// Most grants of one scope.
pub const MAX_GRANTS: usize = 512;

/// Most questions to the user that are open in one session.
pub const MAX_APPROVALS_PER_SESSION: usize = 4;

/// Most questions to the user that are open in all sessions.
pub const MAX_APPROVALS: usize = 32;

/// Most questions to the user in one session within a minute.
pub const MAX_APPROVALS_PER_MINUTE: usize = 12;

/// Sessions whose questions one client watches, one by one.
pub const MAX_WATCHED_SESSIONS: usize = 64;

/// Closed questions that the daemon remembers.
pub const RECENT_APPROVALS: usize = 64;

/// Time in which a question that has expired can still be answered, for the next attempt.
pub const LATE_ANSWER: Duration = Duration::from_secs(10 * 60);

/// Time in which an operation that the user denied is denied again without a question.
pub const DENIED_FOR: Duration = Duration::from_secs(60);

/// Size of one file of `approvals.jsonl`. One older file is kept.
pub const APPROVALS_FILE_BYTES: u64 = 2 * 1024 * 1024;
