//! Access to the import for the programs in `fuzz/`. Requires the feature `fuzzing`, which no other crate
//! enables.

use crate::Gone;
use crate::import::{self, Recent};
use quackd_protocol::metadata::Metadata;
use quackd_store::DurableDocument;
use std::time::{Duration, Instant};

/// Parses a metadata file; `None` if it is invalid. Drops duplicate entries.
#[must_use]
pub fn parsed(bytes: &[u8]) -> Option<Metadata> {
    let (metadata, _duplicates) = Metadata::from_json(bytes).ok()?;
    (metadata.version <= Metadata::VERSION).then_some(metadata)
}

/// Imports with recent changes and a clock that only [`Importer::wait`] advances.
#[derive(Debug)]
pub struct Importer {
    recent: Recent,
    now: Instant,
}

/// Result of an import.
#[derive(Debug)]
pub struct Imported {
    /// Entries of both sides.
    pub metadata: Metadata,
    /// Entries that the other program has deleted. They are still in `metadata`.
    pub gone: Gone,
    /// `metadata` without `gone`.
    pub rest: Metadata,
    /// Number of notes for the log.
    pub n_notes: usize,
}

impl Default for Importer {
    fn default() -> Self {
        Self { recent: Recent::default(), now: Instant::now() }
    }
}

impl Importer {
    /// Imports the external content `theirs`.
    pub fn import(&mut self, base: &Metadata, ours: &Metadata, theirs: &Metadata) -> Imported {
        let imported = import::import(base, &self.recent, ours, theirs, self.now);
        self.recent.seen(theirs);
        Imported {
            rest: imported.gone.without(&imported.metadata),
            metadata: imported.metadata,
            gone: imported.gone,
            n_notes: imported.notes.len(),
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
