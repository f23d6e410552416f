//! Limits of an audit.

/// Limits of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Maximum number of directory entries to read.
    pub entries: u64,
    /// Deadline. A late audit is incomplete.
    pub until: std::time::Instant,
}
