//! Retention: garbage collection of expired files in the state directory, and removal of sessions whose directory is
//! gone.
//!
//! Called by [`crate::service::daemon`] for the periodic collection, by `quack.gc`, and by `doctor`. All disk access is
//! on the blocking pool.

mod gc;
mod pruning;
mod unended_calls;

pub(crate) use pruning::{Lost, gone, prune};

use crate::health::Health;
use crate::health::loop_monitor::LoopMonitor;
use crate::registry::Registry;
use crate::session::services::SessionServices;
use actix::Addr;
use quackd_config::KeepSettings;
use quackd_home::call_journal::JournalLimits;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Interval between two checks of the free disk space.
const DISK_INTERVAL: Duration = Duration::from_secs(10);

/// One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct Retention {
    sessions: Rc<SessionServices>,
    health: Rc<Health>,
    loop_monitor: Rc<LoopMonitor>,
    keep: KeepSettings,
    /// Permit for one collection at a time.
    cleaning: Semaphore,
    /// Time and result of the last collection, for display.
    last: RefCell<Option<String>>,
}

impl Retention {
    pub(crate) fn new(
        sessions: Rc<SessionServices>,
        health: Rc<Health>,
        loop_monitor: Rc<LoopMonitor>,
    ) -> Rc<Self> {
        let keep = sessions.daemon.config.keep.clone();
        let (cleaning, last) = (Semaphore::new(1), RefCell::new(None));
        Rc::new(Self { sessions, health, loop_monitor, keep, cleaning, last })
    }

    /// Time and result of the last collection, for display.
    pub(crate) fn last(&self) -> Option<String> {
        self.last.borrow().clone()
    }

    /// Starts the periodic tasks. They run until the daemon ends.
    pub(crate) fn start(self: &Rc<Self>, registry: &Addr<Registry>) {
        actix::spawn(watch_disk(Rc::clone(self), registry.clone()));
        actix::spawn(gc::repeat(Rc::clone(self), registry.clone()));
    }
}

/// Checks the free space periodically, and collects garbage once when it becomes low.
async fn watch_disk(retention: Rc<Retention>, registry: Addr<Registry>) {
    let disk = &retention.sessions.pool.disk;
    loop {
        disk.check().await;
        // Another caller's check may have found it.
        if disk.take_cleanup_due() {
            retention.collect_periodically(&registry).await;
        }
        tokio::time::sleep(DISK_INTERVAL).await;
    }
}

/// Retention of the journal of calls. Zero time means that there is none.
pub(crate) fn journal_limits(keep: &KeepSettings) -> JournalLimits {
    JournalLimits { kept: keep.journal.value, max_bytes: mebibytes(keep.journal_mb.value) }
}

fn mebibytes(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX).saturating_mul(1024 * 1024)
}
