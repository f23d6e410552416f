//! Limits of the files in the state directory: sessions, retention, garbage collection and logs.

use std::time::Duration;

/// Sessions and workspaces that the metadata may hold.
pub const MAX_SESSIONS: usize = 10_000;

/// Longest session name, in characters.
pub const MAX_NAME_CHARS: usize = 100;

/// Largest `metadata.json` that is read, in bytes.
pub const MAX_METADATA_BYTES: u64 = 64 * 1024 * 1024;

/// Largest `quackd-state.json` that is read, in bytes: the content of `metadata.json`, and 1.6 KiB for each of the
/// sessions.
pub const MAX_STATE_BYTES: u64 = MAX_METADATA_BYTES + 16 * 1024 * 1024;

/// Default retention of spill files.
pub const OUTPUTS_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Default retention of the originals of replaced files.
pub const UNDO_KEPT: Duration = OUTPUTS_KEPT;

/// Total size of the originals of all sessions, in bytes. The oldest are deleted first. Eight sessions can each use
/// their full quota.
pub const MAX_UNDO_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// Default of `keep.caches_mb`, in bytes: total size of the package caches of all workspaces.
pub const MAX_CACHES_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// Default of `keep.journal_days`: retention of the journal of calls.
pub const JOURNAL_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Default of `keep.journal_mb`, in bytes: total size of the journal of calls. Some 200,000 calls fit.
pub const MAX_JOURNAL_BYTES: u64 = 64 * 1024 * 1024;

/// Largest text of a call in the journal, in bytes. A longer one keeps both ends.
pub const MAX_JOURNAL_TEXT_BYTES: usize = 8 * 1024;

/// Largest line of the journal, in bytes, with all of its parts escaped. A reader skips longer ones.
pub const MAX_JOURNAL_LINE_BYTES: usize = 128 * 1024;

/// Free space required on the disk of the state directory, in bytes, and at most a tenth of the disk. With less,
/// optional files are not written. Hundreds of saves of the metadata fit.
pub const MIN_FREE_BYTES: u64 = 200 * 1024 * 1024;

/// Default minimum age of damaged files and histories that `quack.gc` deletes.
pub const GC_KEPT_ASIDE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Largest number of items in a dry run of `quack.gc`.
pub const MAX_GC_NAMED: usize = 1000;

/// Size at which `duck-daemon.log` is rotated, in bytes.
pub const LOG_FILE_BYTES: usize = 8 * 1024 * 1024;

/// Rotated log files kept in addition to the current one.
pub const LOG_FILES_KEPT: usize = 4;
