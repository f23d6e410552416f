//! Resources that all sessions share: the table of sessions with the slots of their processes,
//! command slots, disk space, memory and networks.

pub(crate) mod command_slots;
pub(crate) mod copy_sizes;
pub(crate) mod disk_space;
pub(crate) mod memory;
pub(crate) mod network;
pub(crate) mod sessions;
pub(crate) mod snapshot;
pub(crate) mod spill_quota;
pub(crate) mod terminals;

use command_slots::CommandSlots;
use copy_sizes::CopySizes;
use disk_space::DiskSpace;
use network::SessionNetworks;
use spill_quota::SpillQuota;
use std::rc::Rc;
use terminals::TerminalCounts;

/// One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Permits for running commands.
    pub(crate) slots: CommandSlots,
    /// Size limit for spill files.
    pub(crate) spills: SpillQuota,
    /// Disk space of the private copies of isolated sessions.
    pub(crate) copies: CopySizes,
    pub(crate) disk: Rc<DiskSpace>,
    /// Requests for hosts, and forwarded ports.
    pub(crate) networks: SessionNetworks,
    /// Running terminals.
    pub(crate) terminals: TerminalCounts,
}
