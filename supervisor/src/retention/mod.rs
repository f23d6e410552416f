//! Keeping house: how much room the disk has, and deleting what nobody needs any more.
//!
//! Owns: what is kept for how long ([`gc`]), and what is done while the disk is almost full ([`disk_space`]).
//! Called by: [`crate::service::daemon`] for what happens by itself, `quack.gc`, `quack.ps`, `doctor`, and the WorkerHandles.
//! Blocks on nothing: the disk is looked at on the blocking pool, where a look that hangs keeps others away.

mod disk_space;
mod gc;
mod pruning;

pub(crate) use pruning::{gone, prune};

use crate::log::LogControl;
use crate::services::Services;
use quackd_config::KeepSettings;
use quackd_home::{DiskRoom, Home};
use quackd_protocol::client::DiskInfo;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// One instance per daemon.
#[derive(Debug)]
pub(crate) struct Keeping {
    home: Home,
    keep: KeepSettings,
    log: LogControl,
    /// What has to be free, in bytes, if the disk is large enough.
    wanted: u64,
    /// As it was at the last look.
    room: Cell<Option<DiskRoom>>,
    is_low: Cell<bool>,
    /// It became low, and nothing was deleted for it yet.
    got_low: Cell<bool>,
    /// Places for looks at the disk: one that hangs holds its own for ever.
    looks: Arc<Semaphore>,
    /// One cleaning at a time.
    cleaning: Semaphore,
    /// When and what was deleted last, for people.
    last: RefCell<Option<String>>,
}

impl Keeping {
    /// Looks at nothing yet.
    pub(crate) fn new(home: Home, keep: KeepSettings, log: LogControl) -> Self {
        let wanted = mebibytes(keep.min_free_mb.value);
        let room = Cell::new(None);
        let (looks, cleaning) = (Arc::new(Semaphore::new(1)), Semaphore::new(1));
        let (is_low, got_low) = (Cell::new(false), Cell::new(false));
        let last = RefCell::new(None);
        Self { home, keep, log, wanted, room, is_low, got_low, looks, cleaning, last }
    }

    /// What has to be free for a worker to write long outputs to files, in bytes.
    pub(crate) fn min_free(&self) -> u64 {
        self.room.get().map_or(self.wanted, |room| room.needed(self.wanted))
    }

    /// The disk as it was at the last look; `None` before it, and where the system does not tell.
    pub(crate) fn disk(&self) -> Option<DiskInfo> {
        let room = self.room.get()?;
        Some(DiskInfo { free_bytes: room.free, total_bytes: room.total, low: self.is_low.get() })
    }

    /// Lines that are missing in the log.
    pub(crate) fn log_lines_dropped(&self) -> u64 {
        self.log.lines_dropped()
    }
}

fn mebibytes(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX).saturating_mul(1024 * 1024)
}

/// Does by itself what is to be done, until the daemon ends.
pub(crate) fn start(services: &Rc<Services>, registry: &actix::Addr<crate::registry::Registry>) {
    actix::spawn(disk_space::watch(Rc::clone(services), registry.clone()));
    actix::spawn(gc::repeat(Rc::clone(services), registry.clone()));
}
