//! Finds entries whose id an earlier entry in the file has. Used by the parsers in [`crate::document`].

use std::collections::HashSet;
use std::fmt;

/// Maximum number of reported duplicates. A damaged file may have millions, and each becomes a log line.
pub(crate) const MAX_REPORTED: usize = 100;

/// Entry that was left out because an earlier entry has the same id. Contains that id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Duplicate {
    /// A second workspace.
    Workspace(String),
    /// A second session.
    Session(String),
    /// A second state entry of a session.
    State(String),
}

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workspace(id) => write!(f, "second workspace with the id {id:.80?} left out"),
            Self::Session(id) => write!(f, "second session with the id {id:.80?} left out"),
            Self::State(id) => write!(f, "second state of the session {id:.80?} left out"),
        }
    }
}

/// Collects entries with a repeated id.
pub(crate) struct Duplicates {
    seen: HashSet<String>,
    kind: fn(String) -> Duplicate,
    found: Vec<Duplicate>,
}

impl Duplicates {
    pub(crate) fn new(kind: fn(String) -> Duplicate) -> Self {
        Self { seen: HashSet::new(), kind, found: Vec::new() }
    }

    /// Returns true for the first entry with this id. Otherwise records a duplicate.
    pub(crate) fn is_first(&mut self, id: &str) -> bool {
        let first = self.seen.insert(id.to_owned());
        if !first && self.found.len() < MAX_REPORTED {
            self.found.push((self.kind)(id.to_owned()));
        }
        first
    }

    /// Returns the first [`MAX_REPORTED`] duplicates.
    pub(crate) fn found(self) -> Vec<Duplicate> {
        self.found
    }
}
