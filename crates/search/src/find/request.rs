//! Request and result of find.

use crate::note::Note;
use crate::outcome::{Skipped, Total, Warning};
use crate::request::Case;
use crate::scope::Scope;
use crate::tree::Stop;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Request of find.
#[derive(Debug, Clone)]
pub struct Find {
    /// Selects entries by name.
    pub name: NameRule,
    /// Case sensitivity of names. [`NameRule::Minimatch`] always ignores case.
    pub case: Case,
    /// Entry kinds to return.
    pub kinds: Kinds,
    /// Files to walk. Its sort order is ignored: `sort_by` applies.
    pub scope: Scope,
    /// Minimum size in bytes. Restricts the result to regular files.
    pub min_size: Option<u64>,
    /// Maximum size in bytes. Restricts the result to regular files.
    pub max_size: Option<u64>,
    /// Earliest modification time, inclusive.
    pub modified_after: Option<SystemTime>,
    /// Latest modification time, exclusive.
    pub modified_before: Option<SystemTime>,
    /// Sort order.
    pub sort_by: FindSort,
    /// Return size, time and mode too.
    pub long: bool,
    /// Maximum number of entries in a page. 0 means 10,000, the upper bound.
    pub limit: usize,
    /// Number of entries to skip.
    pub offset: u64,
    /// Cursor returned with the previous page. Overrides the offset.
    pub cursor: Option<String>,
    /// Deadline and cancellation.
    pub stop: Stop,
}

impl Find {
    /// Finds every regular file in the root, sorted by path.
    #[must_use]
    pub fn new(stop: Stop) -> Self {
        Self {
            name: NameRule::Everything,
            case: Case::Sensitive,
            kinds: Kinds { files: true, dirs: false, symlinks: false },
            scope: Scope::default(),
            min_size: None,
            max_size: None,
            modified_after: None,
            modified_before: None,
            sort_by: FindSort::Path,
            long: false,
            limit: 0,
            offset: 0,
            cursor: None,
            stop,
        }
    }
}

/// Rule for names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NameRule {
    /// Minimatch pattern, case-insensitive. Compared with the base name, with the path relative to the root and
    /// to the start path, and with both paths after a leading slash. Any match counts.
    Minimatch(String),
    /// Globs, interpreted like `include` of the scope. One must match.
    Globs(Vec<String>),
    /// The characters of the text occur in the path in this order; see [`FoundEntry::score`].
    Fuzzy(String),
    /// Every name.
    Everything,
}

/// Entry kinds to return. Find never returns FIFOs, sockets and devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kinds {
    /// Regular files.
    pub files: bool,
    /// Directories, except the start paths.
    pub dirs: bool,
    /// Symlinks that are not followed.
    pub symlinks: bool,
}

/// Sort order. Ties are sorted by path, in byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FindSort {
    /// Byte order of the whole relative path.
    #[default]
    Path,
    /// Last modified first.
    Modified,
    /// Largest first.
    Size,
    /// Highest score first. Path order without [`NameRule::Fuzzy`].
    Score,
}

/// A page of found entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FindOutcome {
    /// In the requested order.
    pub entries: Vec<FoundEntry>,
    /// Number of entries in this page.
    pub shown: u64,
    /// Number of entries in the whole answer.
    pub total: Total,
    /// At least one more exists.
    pub truncated: bool,
    /// Offset of the next page, if more entries exist.
    pub next_offset: Option<u64>,
    /// Cursor for the next page, if more entries exist.
    pub cursor: Option<String>,
    /// Counts of skipped entries.
    pub skipped: Skipped,
    /// The first paths that could not be read.
    pub warnings: Vec<Warning>,
    /// Directories and entries that could not be read.
    pub unreadable: u64,
    /// The deadline passed: entries may be missing.
    pub timed_out: bool,
    /// The walk stopped after 1,000,000 entries: some may be missing.
    pub too_many_files: bool,
    /// Time taken.
    pub elapsed: Duration,
    /// Facts that the reader needs to judge the answer.
    pub notes: Vec<Note>,
}

/// One entry that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundEntry {
    /// Relative to the root.
    pub path: PathBuf,
    /// Type of the entry.
    pub kind: EntryKind,
    /// Size in bytes, if requested or needed for a condition. Regular files only.
    pub size: Option<u64>,
    /// Modification time, if requested or needed for a condition.
    pub modified: Option<SystemTime>,
    /// Permissions, if requested: the lower 12 bits of the mode.
    pub mode: Option<u32>,
    /// Score of a fuzzy match. Higher is better.
    pub score: Option<u32>,
}

/// Type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symlink that was not followed.
    Symlink,
}
