//! What find asks, and what it found.

use crate::note::Note;
use crate::outcome::{Skipped, Total, Warning};
use crate::request::Case;
use crate::scope::Scope;
use crate::tree::Stop;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// What to find.
#[derive(Debug, Clone)]
pub struct Find {
    /// Which names.
    pub name: NameRule,
    /// Whether case counts in names. [`NameRule::Minimatch`] never looks at it.
    pub case: Case,
    /// Which kinds of entries.
    pub kinds: Kinds,
    /// Where. Its order is not used, `sort_by` is.
    pub scope: Scope,
    /// Regular files of at least so many bytes only.
    pub min_size: Option<u64>,
    /// Regular files of at most so many bytes only.
    pub max_size: Option<u64>,
    /// Entries that were modified at that time or later only.
    pub modified_after: Option<SystemTime>,
    /// Entries that were modified before that time only.
    pub modified_before: Option<SystemTime>,
    /// The order.
    pub sort_by: FindSort,
    /// Also give size, time and mode.
    pub long: bool,
    /// Entries of a page; 0 for 10,000, which is also the most.
    pub limit: usize,
    /// Entries that are left out at the beginning.
    pub offset: u64,
    /// Where the page before ended, from its outcome; used instead of the offset.
    pub cursor: Option<String>,
    /// When to give up.
    pub stop: Stop,
}

impl Find {
    /// Every regular file beneath the root, in the order of paths.
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

/// Which names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NameRule {
    /// In the syntax of minimatch without regard to case, compared with the base name, with the path
    /// relative to the root and to the start, and with these two behind a slash: any match counts.
    Minimatch(String),
    /// Globs of which one must match, as `include` of the scope is read.
    Globs(Vec<String>),
    /// The characters of the text occur in the path in this order; see [`Entry::score`].
    Fuzzy(String),
    /// All.
    Everything,
}

/// Which kinds of entries. FIFOs, sockets and devices are never found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kinds {
    /// Regular files.
    pub files: bool,
    /// Directories, the starts not among them.
    pub dirs: bool,
    /// Symlinks that are not followed.
    pub symlinks: bool,
}

/// The order of what was found. Paths decide between equals, in byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FindSort {
    /// Byte order of the whole relative path.
    #[default]
    Path,
    /// Last modified first.
    Modified,
    /// Largest first.
    Size,
    /// Best first; the order of paths without [`NameRule::Fuzzy`].
    Score,
}

/// A page of what was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FindOutcome {
    /// In the order of the request.
    pub entries: Vec<Entry>,
    /// Their number.
    pub shown: u64,
    /// How many there are.
    pub total: Total,
    /// At least one more exists.
    pub truncated: bool,
    /// The offset of the next page, if there is more.
    pub next_offset: Option<u64>,
    /// Where this page ended, if there is more.
    pub cursor: Option<String>,
    /// What was not looked at.
    pub skipped: Skipped,
    /// The first paths that could not be read.
    pub warnings: Vec<Warning>,
    /// Directories and entries that could not be read.
    pub unreadable: u64,
    /// The deadline passed: entries may be missing.
    pub timed_out: bool,
    /// There are more entries than one search looks at, a million: some may be missing.
    pub too_many_files: bool,
    /// Time taken.
    pub elapsed: Duration,
    /// What a reader must know to judge the answer.
    pub notes: Vec<Note>,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the root.
    pub path: PathBuf,
    /// What it is.
    pub kind: EntryKind,
    /// Its size in bytes, if asked for or looked at; regular files only.
    pub size: Option<u64>,
    /// When it was modified, if asked for or looked at.
    pub modified: Option<SystemTime>,
    /// Its permissions, if asked for: the lower twelve bits of the mode.
    pub mode: Option<u32>,
    /// How well it fits a fuzzy text; more is better.
    pub score: Option<u32>,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symlink that was not followed.
    Symlink,
}
