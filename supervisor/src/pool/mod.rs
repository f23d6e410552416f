//! Limits that all sessions share: worker slots, command slots and disk space. Also holds the status of each session,
//! from which the eviction chooses.

pub(crate) mod command_slots;
pub(crate) mod disk_space;
pub(crate) mod session_status;
pub(crate) mod spill_quota;
pub(crate) mod worker_pool;

use command_slots::CommandSlots;
use disk_space::DiskSpace;
use session_status::SessionStatuses;
use spill_quota::SpillQuota;
use std::rc::Rc;
use worker_pool::WorkerPool;

/// One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Limit on live workers, and the eviction of idle ones.
    pub(crate) workers: WorkerPool,
    /// Permits for running commands.
    pub(crate) slots: CommandSlots,
    pub(crate) statuses: SessionStatuses,
    /// Size limit for spill files.
    pub(crate) spills: SpillQuota,
    pub(crate) disk: Rc<DiskSpace>,
}
