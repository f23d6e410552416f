//! Handle of a direct child. The supervisor watches its workers with it, and [`crate::run`] its shell.

use crate::pid::to_pid;
use crate::platform::{ExitWatch, Identity};
use crate::wait::reap;
use crate::{Exit, Usage};
use nix::sys::signal::Signal;
use rustix::process::Pid;
use std::io;
use std::sync::{Arc, OnceLock};

/// A direct child of this process. Clones refer to the same child.
///
/// On Linux a pidfd identifies the child. So a signal or a reap cannot hit another process that got the same number.
/// Other systems use the pid, and only until the child is reaped.
///
/// Dropping the handle neither kills nor reaps.
#[derive(Debug, Clone)]
pub struct ProcessHandle {
    child: Arc<ReapState>,
}

#[derive(Debug)]
struct ReapState {
    pid: Pid,
    identity: Identity,
    /// Set when the child is reaped. Later callers get the same result.
    exit: OnceLock<(Exit, Usage)>,
}

impl ProcessHandle {
    /// Creates a handle for a direct child that only this handle will reap.
    pub(crate) fn of_child(pid: u32) -> io::Result<Self> {
        let pid = to_pid(pid)?;
        let identity = Identity::open(pid)?;
        Ok(Self { child: Arc::new(ReapState { pid, identity, exit: OnceLock::new() }) })
    }

    /// Returns the process id, for logs and display. Send signals through
    /// [`ProcessHandle::signal`].
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends a signal. Succeeds if the process has already exited.
    ///
    /// # Errors
    /// The process runs with other credentials, or a system call filter forbids the call.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.identity().signal(signal)
    }

    /// Sends TERM. For callers without the names of signals.
    ///
    /// # Errors
    /// Same as [`ProcessHandle::signal`].
    pub fn terminate(&self) -> io::Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Sends KILL.
    ///
    /// # Errors
    /// Same as [`ProcessHandle::signal`].
    pub fn kill(&self) -> io::Result<()> {
        self.signal(Signal::SIGKILL)
    }

    /// Returns the identity of the process in addition to its number.
    pub(crate) fn identity(&self) -> &Identity {
        &self.child.identity
    }

    /// Resolves when the process has exited. Does not reap it. Needs a tokio runtime with I/O.
    ///
    /// # Errors
    /// No descriptor or no event queue entry is left, or the runtime is shutting down.
    pub async fn exited(&self) -> io::Result<()> {
        self.watch()?.exited().await
    }

    /// Returns a watch for the exit. Needs a tokio runtime with I/O.
    ///
    /// # Errors
    /// Same as [`ProcessHandle::exited`].
    pub(crate) fn watch(&self) -> io::Result<ExitWatch> {
        self.identity().watch()
    }

    /// Reaps the process if it has exited, and returns its status; `None` while it runs. Never waits. Later calls
    /// return the same status.
    ///
    /// # Errors
    /// `ECHILD` if the child was reaped elsewhere.
    pub fn try_reap(&self) -> io::Result<Option<Exit>> {
        if let Some((exit, _)) = self.child.exit.get() {
            return Ok(Some(*exit));
        }
        // Only this call reaps the child, so the number still belongs to it.
        let reaped = reap(self.child.pid.as_raw_nonzero().get())?;
        Ok(reaped.map(|reaped| {
            let (exit, _) = self.child.exit.get_or_init(|| reaped);
            self.identity().note_reaped();
            *exit
        }))
    }

    /// Returns the resources that the process used; `None` until it was reaped.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.child.exit.get().map(|(_, usage)| *usage)
    }
}
