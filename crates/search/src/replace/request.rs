//! What a replacement asks.

use crate::request::{Multiline, Pattern};
use crate::scope::Scope;
use crate::tree::Stop;

/// Replacing in files what a pattern matches.
#[derive(Debug, Clone)]
pub struct Replace {
    /// What is replaced. Lines of one pattern are alternatives, unless matches may cross lines.
    pub pattern: Pattern,
    /// What it is replaced by, at most [`super::MAX_REPLACEMENT_BYTES`].
    pub replacement: String,
    /// The replacement refers to groups, `$1`, `${1}`, `$name` or `${name}`, and `$$` is a dollar. Otherwise it
    /// is text.
    pub template: bool,
    /// Which files. Symlinks are never followed and the order is that of the paths, whatever it says.
    pub scope: Scope,
    /// First and last line, from 1; the scope must be one file then.
    pub line_range: Option<(u64, u64)>,
    /// Files that may change; if more would, nothing is planned. At most [`super::MAX_FILES`].
    pub max_files: usize,
    /// Matches that may be replaced; if more would be, nothing is planned. At most
    /// [`super::MAX_REPLACEMENTS`].
    pub max_replacements: u64,
    /// Matches replaced in each file, the first ones.
    pub max_per_file: Option<u64>,
    /// Leave out files with a NUL byte in their first 8 KiB.
    pub skip_binary: bool,
    /// Whether diffs are made.
    pub diff: DiffMode,
    /// Bytes of all diffs together.
    pub max_diff_bytes: usize,
    /// Line breaks of the replacement stay as they are. Otherwise they become those that most lines of the file
    /// have.
    pub raw_newlines: bool,
    /// When to give up planning.
    pub stop: Stop,
}

impl Replace {
    /// Replaces `pattern` within lines by `replacement` with groups, beneath the root, within the usual limits.
    #[must_use]
    pub fn new(pattern: impl Into<String>, replacement: impl Into<String>, stop: Stop) -> Self {
        Self {
            pattern: Pattern { multiline: Multiline::Off, ..Pattern::new(pattern) },
            replacement: replacement.into(),
            template: true,
            scope: Scope::default(),
            line_range: None,
            max_files: 500,
            max_replacements: 10_000,
            max_per_file: None,
            skip_binary: true,
            diff: DiffMode::None,
            max_diff_bytes: 100 * 1024,
            raw_newlines: false,
            stop,
        }
    }
}

/// Whether diffs are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DiffMode {
    /// No.
    #[default]
    None,
    /// No; the numbers of each file are all that is wanted.
    Stat,
    /// A unified diff of each file.
    Unified,
}
