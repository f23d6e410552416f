//! One pass over the files of a walk, as its threads see it.

use super::options::{ScanOptions, Skip};
use super::others::OtherPatterns;
use crate::tree::{Stop, Tree};
use crate::walk::WalkResult;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// One pass over the files of a walk.
pub(crate) struct Scan<'a> {
    pub(crate) walked: &'a WalkResult,
    pub(crate) tree: &'a dyn Tree,
    pub(crate) ask: &'a ScanOptions,
    pub(crate) stop: &'a Stop,
    /// Similar patterns, whose lines are counted until the pattern matches.
    pub(crate) others: Option<&'a OtherPatterns>,
    /// Number of the first file.
    pub(crate) from: usize,
    /// Rows to skip in the first file.
    pub(crate) skip: Skip,
}

/// Flags that the threads check while they search.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// The scan should stop.
    pub(super) ended: AtomicBool,
    /// Only counts are needed.
    pub(super) only_counts: AtomicBool,
    /// Number of threads that search.
    n_working: AtomicUsize,
}

impl Flags {
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(crate) fn only_counts(&self) -> bool {
        self.only_counts.load(Ordering::Relaxed)
    }

    pub(super) fn n_working(&self) -> usize {
        self.n_working.load(Ordering::Relaxed)
    }

    pub(super) fn begin_work(&self) {
        self.n_working.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_work(&self) {
        self.n_working.fetch_sub(1, Ordering::Relaxed);
    }
}
