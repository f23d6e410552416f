//! Result of searching one file: its rows and counts, or the reason why it was not searched.

use crate::outcome::{Row, Warning};

/// Result of searching one file.
#[derive(Debug)]
pub(crate) enum FileOutcome {
    /// The first rows of a file with many. Its own result follows.
    Part(Vec<Row>),
    /// The file was searched. Contains the hits, if any.
    Searched(Option<Box<Hits>>),
    /// The file contains a NUL byte and was skipped.
    Binary,
    /// The file has a line that is too long. Contains the hits before that line.
    TooLong(Option<Box<Hits>>, Warning),
    TooLarge(Warning),
    Unreadable(Warning),
    /// The file was removed after the walk.
    Gone,
}

impl FileOutcome {
    /// Returns the hits, or `None` if there are none.
    pub(crate) fn into_hits(self) -> Option<Box<Hits>> {
        match self {
            Self::Searched(hits) | Self::TooLong(hits, _) => hits,
            _ => None,
        }
    }
}

/// Rows and counts of one file.
#[derive(Debug, Default)]
pub(crate) struct Hits {
    pub(crate) rows: Vec<Row>,
    /// Number of rows seen, collected or not, without skipped rows.
    pub(crate) n_rows: u64,
    /// Number of skipped rows.
    pub(crate) n_skipped: u64,
    pub(crate) lines: u64,
    pub(crate) matches: u64,
    pub(crate) is_binary: bool,
}
