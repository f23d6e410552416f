//! Reasons why a text is not a glob.

/// Reason for rejecting a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GlobError {
    /// The pattern is longer than 4 KiB.
    #[error("pattern is longer than {max} bytes")]
    TooLong {
        /// Limit that the pattern exceeds.
        max: usize,
    },
    /// The braces expand to too many patterns, or too long ones.
    #[error("pattern stands for more than {max} patterns")]
    TooManyPatterns {
        /// Limit that the pattern exceeds.
        max: usize,
    },
}
