//! Access to the merge for the programs in `fuzz/`. Requires the feature `fuzzing`, which no other crate
//! enables.

use crate::Gone;
use crate::merge::{self, RecentChanges};
use crate::validate::parse;
use quackd_protocol::metadata::Metadata;
use std::time::{Duration, Instant};

/// Parses a metadata file; `None` if it is invalid. Drops duplicate entries.
#[must_use]
pub fn parsed(bytes: &[u8]) -> Option<Metadata> {
    parse(bytes).ok().map(|(metadata, _duplicates)| metadata)
}

/// A merge with its recent changes and a clock that only [`Merger::wait`] advances.
#[derive(Debug)]
pub struct Merger {
    recent: RecentChanges,
    now: Instant,
}

/// Result of a merge.
#[derive(Debug)]
pub struct Merged {
    /// Entries of both sides.
    pub metadata: Metadata,
    /// Entries that the other program has deleted. They are still in `metadata`.
    pub gone: Gone,
    /// `metadata` without `gone`.
    pub rest: Metadata,
    /// Number of reported conflicts.
    pub n_conflicts: usize,
}

impl Default for Merger {
    fn default() -> Self {
        Self { recent: RecentChanges::default(), now: Instant::now() }
    }
}

impl Merger {
    /// Merges the external content `theirs`.
    pub fn merge(&mut self, base: &Metadata, ours: &Metadata, theirs: &Metadata) -> Merged {
        let merged = merge::merge(base, ours, theirs, &mut self.recent, self.now);
        Merged {
            rest: merged.gone.without(&merged.metadata),
            metadata: merged.metadata,
            gone: merged.gone,
            n_conflicts: merged.conflicts.len(),
        }
    }

    /// Records that quackd replaced `before` with `after`.
    pub fn note(&mut self, before: &Metadata, after: &Metadata) {
        self.recent.note(before, after, self.now);
    }

    /// Advances the clock.
    pub fn wait(&mut self, time: Duration) {
        self.now += time;
    }
}
