//! Why a worker could not be confined: which step failed, on what, and the system's answer.

use std::io;
use std::path::{Path, PathBuf};

/// A step of confinement that failed. Nothing runs unconfined because of it: the caller must end.
#[derive(Debug, thiserror::Error)]
#[error("confinement: {step}{}: {source}", on(path.as_deref()))]
pub struct ConfineError {
    /// What was tried, in a few words.
    pub step: &'static str,
    /// The file or directory that it was tried on.
    pub path: Option<PathBuf>,
    /// The system's answer.
    pub source: io::Error,
}

fn on(path: Option<&Path>) -> String {
    path.map(|path| format!(" ({})", path.display())).unwrap_or_default()
}

impl ConfineError {
    /// A failure that no system call reported.
    pub(crate) fn new(step: &'static str, text: impl Into<String>) -> Self {
        Self { step, path: None, source: io::Error::other(text.into()) }
    }
}

/// Names the step, and the path, of a result.
pub(crate) trait Step<T> {
    /// The result with the step's name.
    fn step(self, step: &'static str) -> Result<T, ConfineError>;

    /// The result with the step's name and what it was about.
    fn step_on(self, step: &'static str, path: &Path) -> Result<T, ConfineError>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: &'static str) -> Result<T, ConfineError> {
        self.map_err(|error| ConfineError { step, path: None, source: error.into() })
    }

    fn step_on(self, step: &'static str, path: &Path) -> Result<T, ConfineError> {
        self.map_err(|error| ConfineError {
            step,
            path: Some(path.to_path_buf()),
            source: error.into(),
        })
    }
}
