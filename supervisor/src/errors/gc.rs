//! Errors of the garbage collection.

/// The reason why nothing was deleted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GcError {
    /// Not all sessions are known, so a session's files cannot be recognized as orphaned.
    #[error(
        "Histories stay: metadata.json was not read as it was left ({0}), so it is not certain which sessions exist"
    )]
    NotCertain(String),
    /// A file system error.
    #[error("Cannot read the state directory: {0}")]
    Io(#[from] std::io::Error),
    /// The daemon is shutting down, or overloaded.
    #[error("Daemon is shutting down")]
    Ended,
}
