//! Error of confinement: the failed step, its path, and the system's error.

use std::io;
use std::path::{Path, PathBuf};

/// A failed step of confinement. The caller must exit, so that no command runs unconfined.
#[derive(Debug, thiserror::Error)]
#[error("confinement: {step}{}: {source}", on(path.as_deref()))]
pub struct ConfineError {
    /// The step, in a few words.
    pub step: &'static str,
    /// File or directory of the step.
    pub path: Option<PathBuf>,
    /// Error of the system.
    pub source: io::Error,
}

fn on(path: Option<&Path>) -> String {
    path.map(|path| format!(" ({})", path.display())).unwrap_or_default()
}

impl ConfineError {
    /// Creates an error that no system call reported.
    pub(crate) fn new(step: &'static str, text: impl Into<String>) -> Self {
        Self { step, path: None, source: io::Error::other(text.into()) }
    }
}

/// Extension trait that adds the step and the path to an error.
pub(crate) trait StepContext<T> {
    /// Adds the name of the step.
    fn step(self, step: &'static str) -> Result<T, ConfineError>;

    /// Adds the name of the step and its path.
    fn step_on(self, step: &'static str, path: &Path) -> Result<T, ConfineError>;
}

impl<T, E: Into<io::Error>> StepContext<T> for Result<T, E> {
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
