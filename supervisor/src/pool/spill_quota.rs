//! Keeps the spill files of all sessions below their size limit.
//!
//! Checks the run directories soon after a call or a job may have written a spill file, at most once per second. Also
//! checks them every minute, because background jobs may write. The sessions report possible writes. The checks
//! run on the blocking pool.

use crate::metrics::Metrics;
use quackd_home::trim_spills_blocking;
use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Minimum pause between two checks.
const PAUSE: Duration = Duration::from_secs(1);

/// Interval of the checks without a reported write, because background jobs may write at any time.
const MINUTE: Duration = Duration::from_secs(60);

/// One instance per daemon. Clones share its state.
#[derive(Debug, Clone)]
pub(crate) struct SpillQuota(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    changed: tokio::sync::Notify,
    /// Whether the checking task runs. It starts with the first reported write.
    is_watched: Cell<bool>,
    run_dir: PathBuf,
    max_bytes: u64,
    metrics: Arc<Metrics>,
}

impl SpillQuota {
    pub(crate) fn new(run_dir: PathBuf, max_bytes: u64, metrics: Arc<Metrics>) -> Self {
        let (changed, is_watched) = (tokio::sync::Notify::new(), Cell::new(false));
        Self(Rc::new(Inner { changed, is_watched, run_dir, max_bytes, metrics }))
    }

    /// Schedules a check, because a spill file may have been written.
    pub(crate) fn notify_write(&self) {
        // A report during a check is kept, and causes the next check.
        self.0.changed.notify_one();
        if !self.0.is_watched.replace(true) {
            let inner = Rc::clone(&self.0);
            actix::spawn(async move {
                loop {
                    // A timeout also leads to a check, because a job may still write.
                    tokio::time::timeout(MINUTE, inner.changed.notified()).await.ok();
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
                    "limits.spill_mb reached, deleted old spill files"
                );
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot check the run directories"),
            // The daemon is shutting down.
            Err(_) => {}
        }
    }
}
