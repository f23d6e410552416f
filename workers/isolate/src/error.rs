//! Errors of the work on a copy.

use quackd_isolate::IsolateError;
use std::io;

/// Reason why nothing was done, for the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkError {
    #[error(transparent)]
    Copy(#[from] IsolateError),
    #[error(transparent)]
    Git(#[from] io::Error),
}
