//! What is asked, what comes back, and when to give up.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A search.
#[derive(Debug, Clone)]
pub struct Request {
    /// The pattern; lines of it are alternatives, as for grep.
    pub pattern: String,
    /// How the pattern is read.
    pub dialect: Dialect,
    /// Read a Rust pattern as a basic regular expression instead, if it looks like one and finds
    /// nothing, or cannot be read, as it is.
    pub retry_as_basic: bool,
    /// File or directory to search, relative to the root and free of symlinks; empty for the root.
    pub start: PathBuf,
    /// Searches only files that match this glob. Without a slash it is matched against the base
    /// name; with one, against the path relative to the root or to the start. Empty matches nothing.
    pub include: Option<String>,
    /// Names of directories below the start that are not entered.
    pub exclude_dirs: Vec<String>,
    /// Leave out what `.gitignore`, `.ignore` and git's exclude file name, as ripgrep does. Hidden files
    /// stay.
    pub respect_ignore_files: bool,
    /// Bytes of rows kept, counted as `path:line:text` and a newline.
    pub max_bytes: usize,
    /// When to stop with what was found so far.
    pub deadline: Instant,
    /// Set by the caller to stop without a result.
    pub cancelled: Arc<AtomicBool>,
}

/// How a pattern is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Syntax of the regex crate.
    #[default]
    Rust,
    /// POSIX basic regular expression with GNU's additions, as grep reads it without options.
    Basic,
}

/// One matching line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// File, relative to the root.
    pub path: Arc<Path>,
    /// Line number, from 1.
    pub line: u64,
    /// The line without its newline. A carriage return before it is kept.
    pub text: Vec<u8>,
}

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// In the byte order of the path, then by line.
    pub rows: Vec<Row>,
    /// At least one more row exists, or the only row is cut.
    pub truncated: bool,
    /// The deadline passed: rows may be missing.
    pub timed_out: bool,
    /// There are more files than one search looks at, a million.
    pub too_many_files: bool,
    /// Files that were searched to the end or until the result was full.
    pub files_searched: usize,
    /// Files that were not.
    pub skipped: Skipped,
    /// How the pattern was read to find these rows.
    pub dialect_used: Dialect,
}

/// Files that could not be searched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    /// They hold a NUL byte.
    pub binary: usize,
    /// Files and directories that could not be opened or read.
    pub unreadable: usize,
    /// They have a line of more than 8 MiB; rows before that line are kept.
    pub too_long: usize,
}

/// Why a search cannot be answered.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// The pattern is longer than 64 KiB.
    #[error("pattern is longer than {max} bytes")]
    PatternTooLong {
        /// The limit.
        max: usize,
    },
    /// The pattern cannot be read.
    #[error("{reason}")]
    BadPattern {
        /// One line.
        reason: String,
    },
    /// The include glob cannot be read.
    #[error("invalid include pattern '{glob}': {reason}")]
    BadInclude {
        /// As it was given.
        glob: String,
        /// One line.
        reason: String,
    },
    /// The start does not exist.
    #[error("no such file or directory")]
    StartNotFound,
    /// The caller wants no result any more.
    #[error("the search was cancelled")]
    Cancelled,
}

/// The two reasons to stop early.
#[derive(Debug)]
pub(crate) struct Stop<'a> {
    deadline: Instant,
    cancelled: &'a AtomicBool,
}

impl<'a> Stop<'a> {
    pub(crate) fn until(deadline: Instant, cancelled: &'a AtomicBool) -> Self {
        Self { deadline, cancelled }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Cheap enough (about 30 ns) to be asked for every file and every matching line.
    pub(crate) fn is_reached(&self) -> bool {
        self.is_cancelled() || self.deadline <= Instant::now()
    }
}
