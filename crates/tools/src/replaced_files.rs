//! Notices that the user or a package manager has replaced a file of the system which the worker still shows. Called by
//! `bash`.

use quackd_sandbox::confine::MountSources;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Time for which the last check is valid, in milliseconds.
const VALID_MS: u64 = 1000;

/// Files and directories of the host that are mounted by themselves.
#[derive(Debug)]
pub(crate) struct ReplacedFiles {
    sources: MountSources,
    since: Instant,
    /// Time of the last check, in milliseconds since `since`.
    checked_ms: AtomicU64,
}

impl ReplacedFiles {
    pub(crate) fn new(sources: MountSources) -> Self {
        Self { sources, since: Instant::now(), checked_ms: AtomicU64::new(0) }
    }

    /// Whether one of them was replaced. False if the last check is still valid: a call that this worker has to run
    /// anyway is not refused a second time.
    pub(crate) fn are_noticed_blocking(&self) -> bool {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let checked = self.checked_ms.load(Ordering::Relaxed);
        if now.saturating_sub(checked) < VALID_MS {
            return false;
        }
        self.checked_ms.store(now, Ordering::Relaxed);
        self.sources.have_changed_blocking()
    }
}
