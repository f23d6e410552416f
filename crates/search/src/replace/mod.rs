//! Planning replacements: what would change in which files, and the new content of one file.
//!
//! Owns: what a match is replaced by, which bytes stay, and the limits. Writes nothing: `crates/tools` applies
//! a plan, file by file, and recognises by digests that it is the planned change.

mod diff;
mod editor;
mod error;
mod matcher;
mod outcome;
mod plan;
mod request;
mod template;
mod text;

pub use editor::{Edited, Editor};
pub use error::{ReplaceError, SkipReason};
pub use outcome::{Digest, Eol, FileEncoding, FilePlan, Plan, SkippedFile};
pub use plan::plan;
pub use request::{DiffMode, Replace};

/// Largest file that is edited, before and after, in bytes: it is in memory several times.
pub const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Longest replacement, in bytes.
pub const MAX_REPLACEMENT_BYTES: usize = 64 * 1024;

/// Files of one plan, whatever a request allows: a plan is kept in memory.
pub const MAX_FILES: usize = 20_000;

/// Matches of one plan, whatever a request allows: where they are is kept for one file at a time.
pub const MAX_REPLACEMENTS: u64 = 1_000_000;

/// Files left out that are named in a plan; all are counted.
pub const MAX_SKIPPED_LISTED: usize = 100;

#[cfg(test)]
mod tests;
