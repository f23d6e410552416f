//! Finds entries whose id an earlier entry in the file has. Used by the parsers in [`crate::document`].

use std::collections::HashSet;
use std::fmt;

/// Maximum number of reported duplicates. A damaged file may have millions, and each becomes a log line.
pub(crate) const MAX_REPORTED: usize = 100;

/// Entry that was left out because an earlier entry has the same id. Its text is for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Duplicate {
    kind: &'static str,
    id: String,
}

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "second {} {:.80?} left out", self.kind, self.id)
    }
}

/// Collects entries with a repeated id.
pub(crate) struct Duplicates {
    seen: HashSet<String>,
    kind: &'static str,
    list: Vec<Duplicate>,
}

impl Duplicates {
    /// `kind`: the words before the id in the text of a [`Duplicate`].
    pub(crate) fn new(kind: &'static str) -> Self {
        Self { seen: HashSet::new(), kind, list: Vec::new() }
    }

    /// Returns true for the first entry with this id. Otherwise records a duplicate.
    pub(crate) fn is_first(&mut self, id: &str) -> bool {
        let first = self.seen.insert(id.to_owned());
        if !first && self.list.len() < MAX_REPORTED {
            self.list.push(Duplicate { kind: self.kind, id: id.to_owned() });
        }
        first
    }

    /// Returns the first [`MAX_REPORTED`] duplicates.
    pub(crate) fn into_vec(self) -> Vec<Duplicate> {
        self.list
    }
}
