//! What the programs in `fuzz/` reach of the inside: the merge. Exists only with the feature `fuzzing`, which nothing
//! else turns on.

use crate::Gone;
use crate::merge::{self, Recent};
use crate::validate::parse;
use quackd_protocol::metadata::Metadata;
use std::time::{Duration, Instant};

/// A file, if it can be used. The same entry twice is there once.
#[must_use]
pub fn parsed(bytes: &[u8]) -> Option<Metadata> {
    parse(bytes).ok().map(|(metadata, _duplicates)| metadata)
}

/// The merge with its memory of what we have written lately, and a clock that only [`Merger::wait`] moves.
#[derive(Debug)]
pub struct Merger {
    recent: Recent,
    now: Instant,
}

/// What came of a merge.
#[derive(Debug)]
pub struct Merged {
    /// Everything of both.
    pub metadata: Metadata,
    /// What the other program has deleted of it.
    pub gone: Gone,
    /// The metadata without that.
    pub rest: Metadata,
    /// How many conflicts are told.
    pub n_conflicts: usize,
}

impl Default for Merger {
    fn default() -> Self {
        Self { recent: Recent::default(), now: Instant::now() }
    }
}

impl Merger {
    /// Merges what another program has written.
    pub fn merge(&mut self, base: &Metadata, ours: &Metadata, theirs: &Metadata) -> Merged {
        let merged = merge::merge(base, ours, theirs, &mut self.recent, self.now);
        Merged {
            rest: merged.gone.without(&merged.metadata),
            metadata: merged.metadata,
            gone: merged.gone,
            n_conflicts: merged.conflicts.len(),
        }
    }

    /// Notes what we have written in the place of what.
    pub fn note(&mut self, before: &Metadata, after: &Metadata) {
        self.recent.note(before, after, self.now);
    }

    /// Lets time pass.
    pub fn wait(&mut self, time: Duration) {
        self.now += time;
    }
}
