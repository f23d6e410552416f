//! The template of workers, as in the directory for Linux: there is none, so every worker is a start of the program.

use crate::{SelfExe, SpawnError, SpawnedChild};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// A running template. None exists.
#[derive(Debug)]
pub enum Template {}

impl Template {
    /// Fails: this system cannot start a process for another parent.
    ///
    /// # Errors
    /// Always.
    pub fn start_blocking(_exe: &SelfExe, _args: &[&str]) -> Result<Self, SpawnError> {
        Err(io::Error::from(io::ErrorKind::Unsupported).into())
    }

    /// Returns the process id of the template.
    #[must_use]
    pub fn pid(&self) -> u32 {
        match *self {}
    }

    /// Returns whether the template has started as many workers as it may.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        match *self {}
    }

    /// Forks a worker.
    ///
    /// # Errors
    /// See [`SpawnError`].
    pub fn fork_blocking(&mut self, _stdin: BorrowedFd<'_>) -> Result<SpawnedChild, SpawnError> {
        match *self {}
    }

    /// Kills the template.
    pub fn end_blocking(self) {
        match self {}
    }
}

/// The channel to the template.
impl AsFd for Template {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match *self {}
    }
}

/// Fails: see [`Template::start_blocking`].
///
/// # Errors
/// Always.
pub fn serve_template() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
