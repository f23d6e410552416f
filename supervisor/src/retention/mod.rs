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
use crate::session::services::SessionServices;
use quackd_config::KeepSettings;
use quackd_home::call_journal::JournalLimits;
use std::cell::RefCell;
use std::rc::Rc;
use tokio::sync::Semaphore;

/// State of the collection. One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct Retention {
    sessions: Rc<SessionServices>,
    health: Rc<Health>,
    loop_monitor: Rc<LoopMonitor>,
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
        let (cleaning, last) = (Semaphore::new(1), RefCell::new(None));
        Rc::new(Self { sessions, health, loop_monitor, cleaning, last })
    }

    /// Returns the time and result of the last collection, for display.
    pub(crate) fn last(&self) -> Option<String> {
        self.last.borrow().clone()
    }
}

/// Returns the retention of the journal of calls. Zero time means that there is none.
pub(crate) fn journal_limits(keep: &KeepSettings) -> JournalLimits {
    JournalLimits { kept: keep.journal.value, max_bytes: mebibytes(keep.journal_mb.value) }
}

/// Returns the bytes of a setting in MiB.
pub(crate) fn mebibytes(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX).saturating_mul(1024 * 1024)
}
