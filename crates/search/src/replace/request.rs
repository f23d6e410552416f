//! Request of a replacement.

use crate::request::{Multiline, Pattern};
use crate::scope::Scope;
use crate::tree::Stop;

/// Request to replace the matches of a pattern in files.
#[derive(Debug, Clone)]
pub struct Replace {
    /// Pattern to replace. Lines of one pattern are alternatives, unless matches may cross lines.
    pub pattern: Pattern,
    /// Replacement, at most [`super::MAX_REPLACEMENT_BYTES`].
    pub replacement: String,
    /// Whether the replacement refers to groups as `$1`, `${1}`, `$name` or `${name}`, and writes a dollar as
    /// `$$`. Otherwise it is plain text.
    pub template: bool,
    /// Files to change. Symlinks are never followed and the order is always by path, regardless of the scope.
    pub scope: Scope,
    /// First and last line, from 1. Requires a scope of exactly one file.
    pub line_range: Option<(u64, u64)>,
    /// Maximum number of changed files. If more would change, planning fails. At most [`super::MAX_FILES`].
    pub max_files: usize,
    /// Maximum number of replaced matches. If more would be replaced, planning fails. At most
    /// [`super::MAX_REPLACEMENTS`].
    pub max_replacements: u64,
    /// Maximum number of matches replaced in each file, from its start.
    pub max_per_file: Option<u64>,
    /// Skip files with a NUL byte in their first 8 KiB.
    pub skip_binary: bool,
    /// Kind of diff to make.
    pub diff: DiffMode,
    /// Maximum size of all diffs together, in bytes.
    pub max_diff_bytes: usize,
    /// Keep the line breaks of the replacement. Otherwise they are converted to the most frequent line break of
    /// the file.
    pub raw_newlines: bool,
    /// Deadline and cancellation.
    pub stop: Stop,
}

impl Replace {
    /// Replaces `pattern` within lines by `replacement` with groups, in the whole root, with the default
    /// limits.
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

/// Kind of diff to make.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DiffMode {
    /// No diff.
    #[default]
    None,
    /// No diff, only the counts of each file.
    Stat,
    /// A unified diff of each file.
    Unified,
}
