//! Limits of a confined worker as data. Applied when it enters.

/// Limits of a worker and its commands; `None` leaves the system's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Most processes and threads. The kernel does not hold user 0 to it: that takes a control group.
    pub processes: Option<u64>,
    /// Most open descriptors in one process.
    pub open_files: Option<u64>,
    /// Largest file that may be written, in bytes.
    pub file_size: Option<u64>,
}
