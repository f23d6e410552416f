//! Facts about one process, as `platform` reads them. Used by [`crate::members`].

/// A process when it was read. Its number and its start time together identify it until the next boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessFacts {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    /// Real user id.
    pub(crate) user: u32,
    /// Start time: ticks since boot on Linux, microseconds since 1970 on macOS. Only compared for equality, because the
    /// clock can be set.
    pub(crate) started: u64,
    /// True for a zombie.
    pub(crate) has_ended: bool,
}
