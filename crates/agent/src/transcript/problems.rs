//! Defects of session files. [`super::read`] counts them, and the caller reports them.

/// Reason why a file is not a usable session file. The file must not be changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TranscriptError {
    /// The file is empty: a header may be written.
    #[error("the session file is empty")]
    Empty,
    /// The first line is not a header.
    #[error("the first line of the file is not the header of a session")]
    NoHeader,
    /// More than [`super::read::MAX_FILE_BYTES`] or [`super::read::MAX_ENTRIES`].
    #[error("the session file has more than 256 MiB or more than a million entries")]
    TooLarge,
    /// There is no entry with this id.
    #[error("the session has no entry \"{0}\"")]
    UnknownEntry(String),
    /// Only a message of the user can be the start of a fork.
    #[error("entry \"{0}\" is not a message of the user")]
    NotAUserMessage(String),
}

/// Counts of defects that were found in a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Problems {
    /// Lines that are not entries, such as the torn last line after a crash. Skipped.
    pub bad_lines: usize,
    /// Lines over [`super::read::MAX_LINE_BYTES`]. Skipped.
    pub long_lines: usize,
    /// Entries whose parent is unknown, after a line that was skipped or empty. Linked to the entry before that line.
    pub bridged_links: usize,
    /// Entries with an unknown parent. Everything before them is not on their branch.
    pub broken_links: usize,
}

impl Problems {
    /// Returns the sum.
    #[must_use]
    pub fn total(&self) -> usize {
        self.bad_lines + self.long_lines + self.bridged_links + self.broken_links
    }
}
