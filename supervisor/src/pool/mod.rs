//! Limits that all sessions share: worker slots, command slots and disk space; and the status of each session, from
//! which the eviction chooses.

pub(crate) mod command_slots;
pub(crate) mod disk_space;
pub(crate) mod session_status;
pub(crate) mod spill_quota;
pub(crate) mod worker_pool;

use command_slots::Places;
use disk_space::DiskSpace;
use session_status::Standings;
use spill_quota::Spills;
use std::rc::Rc;
use worker_pool::Tenants;

/// One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Live workers, and the choice of the one to evict.
    pub(crate) workers: Tenants,
    /// Permits for running commands.
    pub(crate) slots: Places,
    pub(crate) statuses: Standings,
    /// Size limit for spill files.
    pub(crate) spills: Spills,
    pub(crate) disk: Rc<DiskSpace>,
}
