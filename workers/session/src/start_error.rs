//! Errors of a worker that cannot start.

use std::{fmt, io};

/// Error of starting a worker. A retry does not help.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerStartError {
    /// A system call failed.
    #[error("{step}: {source}")]
    System {
        /// The failed step.
        step: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The other end is not a supervisor.
    #[error("the control channel holds no start frame: {0}")]
    NoStart(String),
    /// The policy cannot be enforced on this system.
    #[error("cannot be confined: {0}")]
    Confinement(String),
    /// The other end is a supervisor of another version.
    #[error("version mismatch: the supervisor speaks frames {theirs}, this worker {ours}")]
    Version {
        /// Frame protocol of the supervisor.
        theirs: u32,
        /// Frame protocol of this worker.
        ours: u32,
    },
}

impl WorkerStartError {
    /// Returns the conversion of the error of a system call in this step.
    pub(crate) fn at(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { step, source }
    }

    /// Returns the error of a policy that cannot be enforced.
    pub(crate) fn confinement(why: impl fmt::Display) -> Self {
        Self::Confinement(why.to_string())
    }
}
