//! Directories of a walk that are not read yet, and the open handles of their parents.

use super::rules::IgnoreRules;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A directory that is not read yet.
#[derive(Debug)]
pub(super) struct PendingDirectory {
    /// Index among the directories of the walk.
    pub(super) dir: u32,
    pub(super) rules: Option<Arc<IgnoreRules>>,
    /// Number of levels below the start path.
    pub(super) depth: usize,
    /// Whether hidden names are kept, because the request named a hidden parent.
    pub(super) shown: bool,
    /// Handle of the parent directory, if it is still open.
    pub(super) within: Option<Arc<DirHandle>>,
    /// Path by which it is reported, and path by which it is opened.
    pub(super) path: Vec<u8>,
    pub(super) real: Vec<u8>,
}

/// A directory that stays open for its children.
#[derive(Debug)]
pub(super) struct DirHandle {
    pub(super) handle: File,
    n_held: Arc<AtomicUsize>,
}

impl DirHandle {
    /// Counts the handle in `n_held` until it is dropped.
    pub(super) fn new(handle: File, n_held: &Arc<AtomicUsize>) -> Self {
        n_held.fetch_add(1, Ordering::Relaxed);
        Self { handle, n_held: Arc::clone(n_held) }
    }
}

impl Drop for DirHandle {
    fn drop(&mut self) {
        self.n_held.fetch_sub(1, Ordering::Relaxed);
    }
}
