//! What a search found, and what it did not look at.

use crate::note::Note;
use crate::request::Dialect;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Paths that could not be read and are named; the others are counted.
pub const MAX_WARNINGS: usize = 5;

/// A page of what a search found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchOutcome {
    /// In the order of the request; each has at least one row, or is one in the modes of files.
    pub files: Vec<FileHits>,
    /// Rows of the mode in this page, context not counted.
    pub shown: u64,
    /// Rows of the mode that there are, as far as known, those before the page too.
    pub total: Total,
    /// At least one more row exists, or the only row is cut.
    pub truncated: bool,
    /// The offset of the next page, if there is more.
    pub next_offset: Option<u64>,
    /// Where this page ended, if there is more.
    pub cursor: Option<String>,
    /// Files that were read, to their end or as far as needed; after a cursor, those of this page.
    pub files_searched: u64,
    /// Of these, the ones with a match (without, if asked for files without).
    pub files_matched: u64,
    /// What was not searched.
    pub skipped: Skipped,
    /// The first paths that could not be read.
    pub warnings: Vec<Warning>,
    /// The deadline passed: rows may be missing.
    pub timed_out: bool,
    /// There are more files than one search looks at, a million: rows may be missing.
    pub too_many_files: bool,
    /// Time taken.
    pub elapsed: Duration,
    /// How the pattern was read to find these rows.
    pub dialect_used: Dialect,
    /// Matches could cross lines.
    pub multiline_used: bool,
    /// What a reader must know to judge the answer.
    pub notes: Vec<Note>,
}

/// A number of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// At least so many.
    pub count: u64,
    /// Exactly so many.
    pub is_exact: bool,
}

/// What was found in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHits {
    /// Relative to the root.
    pub path: Arc<Path>,
    /// Matching lines that were seen; all of them in the mode that counts them.
    pub lines: u64,
    /// Matches that were seen; all of them in the modes that count or show them.
    pub matches: u64,
    /// It holds a NUL byte.
    pub is_binary: bool,
    /// Its rows in this page, in their order; none in the modes of files.
    pub rows: Vec<Row>,
}

/// One line, or the lines of one match across lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Whether it matches.
    pub kind: RowKind,
    /// Line number, from 1.
    pub line: u64,
    /// Number of its last line.
    pub end_line: u64,
    /// Place of the first match in the line, in bytes from 1, also if the text is cut.
    pub column: u64,
    /// Without the newline at its end; a carriage return before it is kept.
    pub text: Vec<u8>,
    /// Where matches are in `text`.
    pub spans: Vec<Range<usize>>,
    /// How much of the line is not shown.
    pub cut: Option<Cut>,
    /// Lines lie between this row and the one before it in this file.
    pub after_gap: bool,
}

/// Whether a row matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKind {
    /// It does.
    Match,
    /// It lies near one that does.
    Context,
}

/// Bytes of a line that are not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Before the text.
    pub before: usize,
    /// After it.
    pub after: usize,
}

/// Numbers of what was not searched. A directory counts once, whatever is in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    /// An ignore file names them.
    pub ignored: u64,
    /// Their name begins with a dot.
    pub hidden: u64,
    /// They hold a NUL byte.
    pub binary: u64,
    /// They are larger than asked for, or than can be read as a whole.
    pub too_large: u64,
    /// They have a line of more than 8 MiB, or less for a pattern that repeats much; what comes before it
    /// was searched.
    pub too_long: u64,
    /// They could not be opened or read.
    pub unreadable: u64,
    /// They are FIFOs, sockets, devices, or symlinks that are not followed.
    pub not_regular: u64,
    /// Globs, types, excluded names or the depth leave them out.
    pub filtered: u64,
}

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Relative to the root; `.` for the root itself.
    pub path: PathBuf,
    /// In the system's words, or ours for a loop of links.
    pub reason: String,
}
