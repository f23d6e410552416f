//! Destination of saves, their results, and the requests that wait for one.

use crate::errors::MethodError;
use quackd_rubber_duck::Writer;
use quackd_store::StoreError;
use tokio::sync::oneshot;

/// Destination of changes.
#[derive(Debug)]
pub(crate) enum Saving {
    /// The store's thread. Dropping the writer completes the submitted saves.
    To(Writer),
    /// The files must not be written.
    Off {
        /// Error text for clients that request a change.
        why: String,
    },
}

/// Error of a save. All requests that shared the save get the same error.
#[derive(Debug, Clone)]
pub(super) enum NotKept {
    Failed(StoreError),
    ReadOnly(String),
}

impl From<NotKept> for MethodError {
    fn from(not_kept: NotKept) -> Self {
        match not_kept {
            NotKept::Failed(error) => Self::NotSaved(error),
            NotKept::ReadOnly(why) => Self::ReadOnly(why),
        }
    }
}

/// Request that waits for a save.
pub(super) type Waiter = oneshot::Sender<Result<(), NotKept>>;

/// Result of a save.
pub(super) type Saved = oneshot::Receiver<Result<(), NotKept>>;

/// A change in memory with its result, and the save that contains it. `None` if the disk has it already.
pub(super) type Changed<T> = Result<(T, Option<Saved>), MethodError>;

/// Returns the result of a change when it is on disk.
pub(super) async fn after_save<T>(changed: Changed<T>) -> Result<T, MethodError> {
    let (result, saved) = changed?;
    kept(saved).await?;
    Ok(result)
}

/// Waits for a save; returns at once for `None`.
pub(super) async fn kept(saved: Option<Saved>) -> Result<(), MethodError> {
    match saved {
        None => Ok(()),
        Some(saved) => saved.await.map_err(|_ended| MethodError::ShuttingDown)?.map_err(Into::into),
    }
}
