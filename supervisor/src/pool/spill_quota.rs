//! Keeps the files with long outputs of all sessions below their limit.
//!
//! Owns: when the run directories are looked at: soon after a call or a job that may have written one has
//! ended, at most once a second, and every minute while background jobs may be writing.
//! Called by: the WorkerHandles. The disk is looked at on the blocking pool.

use crate::metrics::Metrics;
use quackd_home::trim_spills_blocking;
use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// Pause while nothing is said to have changed.
const MINUTE: Duration = Duration::from_secs(60);

/// One instance per daemon. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Spills(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    changed: tokio::sync::Notify,
    /// A task looks after the files: from the first one on.
    is_watched: Cell<bool>,
    run_dir: PathBuf,
    max_bytes: u64,
    metrics: Arc<Metrics>,
}

impl Spills {
    pub(crate) fn new(run_dir: PathBuf, max_bytes: u64, metrics: Arc<Metrics>) -> Self {
        let (changed, is_watched) = (tokio::sync::Notify::new(), Cell::new(false));
        Self(Rc::new(Inner { changed, is_watched, run_dir, max_bytes, metrics }))
    }

    /// A long output may have been written.
    pub(crate) fn may_have_grown(&self) {
        self.0.changed.notify_one();
        if !self.0.is_watched.replace(true) {
            let inner = Rc::clone(&self.0);
            actix::spawn(async move {
                loop {
                    // Nobody said anything for a minute: a job may write all the same.
                    drop(tokio::time::timeout(MINUTE, inner.changed.notified()).await);
                    inner.trim().await;
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
    }
}

impl Inner {
    async fn trim(&self) {
        let (run_dir, max_bytes) = (self.run_dir.clone(), self.max_bytes);
        let trim = move || trim_spills_blocking(&run_dir, max_bytes);
        match actix_rt::task::spawn_blocking(trim).await {
            Ok(Ok(trimmed)) if trimmed.files != 0 => {
                self.metrics.spills_deleted.add(u64::try_from(trimmed.files).unwrap_or(u64::MAX));
                tracing::info!(
                    files = trimmed.files,
                    bytes = trimmed.deleted,
                    "deleted old outputs: limits.spill_mb is reached"
                );
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot look at the run directories"),
            // The daemon ends.
            Err(_) => {}
        }
    }
}
