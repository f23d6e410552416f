//! Plans replacements: the files that would change, and the new content of one file.
//!
//! Decides how a match is replaced, which bytes stay, and the limits. Writes nothing: `crates/tools` applies a
//! plan file by file, and verifies the planned content by digests.

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
pub use outcome::{Digest, Eol, FileEncoding, FilePlan, ReplacePlan, SkippedFile};
pub use plan::plan;
pub use request::{DiffMode, Replace};

/// Maximum size of an edited file before and after the edit, in bytes. The file is in memory several times.
pub const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Maximum length of a replacement in bytes.
pub const MAX_REPLACEMENT_BYTES: usize = 64 * 1024;

/// Maximum number of files in one plan, regardless of the request. A plan stays in memory.
pub const MAX_FILES: usize = 20_000;

/// Maximum number of matches in one plan, regardless of the request. Positions are kept for one file at a time.
pub const MAX_REPLACEMENTS: u64 = 1_000_000;

/// Maximum number of skipped files that a plan lists. All skipped files are counted.
pub const MAX_SKIPPED_LISTED: usize = 100;

#[cfg(test)]
mod tests;
