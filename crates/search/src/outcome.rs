//! Result of a search, with counts of skipped files.

use crate::note::Note;
use crate::request::Dialect;
use smallvec::SmallVec;
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of warnings. Further unreadable paths are only counted.
pub const MAX_WARNINGS: usize = 5;

/// One page of search results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchOutcome {
    /// Files in the requested order. Each has at least one row, or is itself the row in the file modes.
    pub files: Vec<FileHits>,
    /// Rows of the mode in this page, context not counted.
    pub shown: u64,
    /// Known number of rows in all pages, including the pages before this one.
    pub total: Total,
    /// Whether at least one more row exists, or the only row is cut.
    pub truncated: bool,
    /// Offset of the next page, if more rows exist.
    pub next_offset: Option<u64>,
    /// Cursor for the next page, if more rows exist.
    pub cursor: Option<String>,
    /// Files that were read completely or as far as needed. After a cursor, only the files of this page.
    pub files_searched: u64,
    /// Searched files with a match, or without one if the mode lists files without matches.
    pub files_matched: u64,
    /// Counts of skipped files.
    pub skipped: Skipped,
    /// The first paths that could not be read.
    pub warnings: Vec<Warning>,
    /// The first files of which a part was not searched, or nothing, because of their size.
    pub unfinished: Vec<Warning>,
    /// Number of these files.
    pub n_unfinished: u64,
    /// The deadline passed: rows may be missing.
    pub timed_out: bool,
    /// The walk stopped after 1,000,000 entries: rows may be missing.
    pub too_many_files: bool,
    /// Time taken.
    pub elapsed: Duration,
    /// Dialect in which the pattern found these rows.
    pub dialect_used: Dialect,
    /// Matches could cross lines.
    pub multiline_used: bool,
    /// Facts that the reader needs to judge the answer.
    pub notes: Vec<Note>,
}

/// A number of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// Number of rows, or a lower bound.
    pub count: u64,
    /// Whether `count` is exact.
    pub is_exact: bool,
}

/// Rows found in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHits {
    /// Relative to the root.
    pub path: Arc<Path>,
    /// Number of matching lines seen. Complete in the mode that counts lines.
    pub lines: u64,
    /// Number of matches seen. Complete in the modes that count or return matches.
    pub matches: u64,
    /// Whether the file contains a NUL byte.
    pub is_binary: bool,
    /// Rows of this file in this page. Empty in the file modes.
    pub rows: Vec<Row>,
}

/// Byte ranges of matches. Most lines have one match, which needs no allocation.
pub type Spans = SmallVec<[Range<usize>; 1]>;

/// One line, or the lines of one match across lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Whether the row is a match or context.
    pub kind: RowKind,
    /// Line number, from 1.
    pub line: u64,
    /// Number of the row's last line.
    pub end_line: u64,
    /// Byte position of the first match in the line, from 1. Refers to the full line, even if the text is cut.
    pub column: u64,
    /// Without the newline at its end; a carriage return before it is kept.
    pub text: Vec<u8>,
    /// Byte ranges of the matches in `text`.
    pub spans: Spans,
    /// Number of bytes cut from the line.
    pub cut: Option<Cut>,
    /// Whether lines are missing between the previous row of this file and this row.
    pub after_gap: bool,
}

/// Kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKind {
    /// Matching line.
    Match,
    /// Context of a matching line.
    Context,
}

/// Number of bytes cut from a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Bytes before the text.
    pub before: usize,
    /// Bytes after the text.
    pub after: usize,
}

/// Counts of skipped files and directories. A directory counts once, regardless of its contents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Excluded by an ignore file.
    pub ignored: u64,
    /// Excluded because the name begins with a dot.
    pub hidden: u64,
    /// Excluded because the file contains a NUL byte.
    pub binary: u64,
    /// Larger than requested, or too large to be read at once.
    pub too_large: u64,
    /// Files with a line of more than 8 MiB, or less for a pattern that repeats much. Only the part before that
    /// line was searched.
    pub too_long: u64,
    /// Could not be opened or read.
    pub unreadable: u64,
    /// FIFOs, sockets, devices, and symlinks that are not followed.
    pub not_regular: u64,
    /// Excluded by globs, types, excluded names or the depth.
    pub filtered: u64,
}

impl Skipped {
    /// Adds the counts of `more`.
    pub(crate) fn add(&mut self, more: &Self) {
        self.ignored += more.ignored;
        self.hidden += more.hidden;
        self.binary += more.binary;
        self.too_large += more.too_large;
        self.too_long += more.too_long;
        self.unreadable += more.unreadable;
        self.not_regular += more.not_regular;
        self.filtered += more.filtered;
    }
}

/// A path that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Relative to the root; `.` for the root itself.
    pub path: PathBuf,
    /// System error text, or quackd's own text for a loop of links.
    pub reason: String,
}

impl Warning {
    /// Creates a warning about a path relative to the root, which is empty for the root itself.
    pub(crate) fn at(path: &[u8], reason: String) -> Self {
        let path = if path.is_empty() { b"." } else { path };
        Self { path: PathBuf::from(OsStr::from_bytes(path)), reason }
    }
}

/// Returns the system's error text without the number that the standard library adds.
pub(crate) fn words(error: &io::Error) -> String {
    let mut text = error.to_string();
    text.truncate(text.find(" (os error").unwrap_or(text.len()));
    text
}
