//! Resource limits of a confined worker, as data. Applied when it enters confinement.

/// Limits of a worker and its commands. `None` keeps the system's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConfinementLimits {
    /// Maximum number of processes and threads. Does not apply to user 0, which needs a control group.
    pub processes: Option<u64>,
    /// Maximum number of open descriptors in one process.
    pub open_files: Option<u64>,
    /// Largest file that may be written, in bytes.
    pub file_size: Option<u64>,
    /// Size of all files in private directories, in bytes. They are in memory. By default 2 GiB.
    pub private_bytes: Option<u64>,
}
