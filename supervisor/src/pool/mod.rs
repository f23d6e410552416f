//! Resources that all sessions share: the table of sessions with the slots of their processes,
//! command slots, disk space and networks.

pub(crate) mod command_slots;
pub(crate) mod disk_space;
pub(crate) mod network;
pub(crate) mod sessions;
pub(crate) mod snapshot;
pub(crate) mod spill_quota;

use command_slots::CommandSlots;
use disk_space::DiskSpace;
use network::SessionNetworks;
use spill_quota::SpillQuota;
use std::rc::Rc;

/// One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Permits for running commands.
    pub(crate) slots: CommandSlots,
    /// Size limit for spill files.
    pub(crate) spills: SpillQuota,
    pub(crate) disk: Rc<DiskSpace>,
    /// Requests for hosts, and forwarded ports.
    pub(crate) networks: SessionNetworks,
}
