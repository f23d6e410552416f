//! Handles by process id, which belongs to the child until it is reaped. Compiled for macOS, not run there.

use super::ProcessHandle;
use nix::sys::signal::Signal;
use rustix::process::Pid;
use std::io;

/// Only the number identifies the child.
#[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
pub(super) fn open(pid: Pid) -> io::Result<Identity> {
    Ok(pid)
}

pub(super) type Identity = Pid;

impl ProcessHandle {
    /// Sends a signal. Succeeds if the process has already exited.
    ///
    /// # Errors
    /// The process runs with other credentials.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        // Until the child is reaped, the number belongs to it.
        if self.child.exit.get().is_some() {
            return Ok(());
        }
        let pid = nix::unistd::Pid::from_raw(self.child.identity.as_raw_nonzero().get());
        match nix::sys::signal::kill(pid, signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Waits for the exit of one process by SIGCHLD and a check that does not reap.
#[derive(Debug)]
pub(crate) struct ExitWatch {
    process: ProcessHandle,
}

impl ExitWatch {
    pub(crate) fn new(process: &ProcessHandle) -> io::Result<Self> {
        Ok(Self { process: process.clone() })
    }

    pub(crate) async fn exited(&self) -> io::Result<()> {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        use tokio::signal::unix::{SignalKind, signal};

        // Registered before the first check, so that no exit is missed between the two.
        let mut child_changed = signal(SignalKind::child())?;
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while self.process.child.exit.get().is_none()
            && waitid(WaitId::Pid(self.process.child.identity), look)?.is_none()
        {
            child_changed.recv().await;
        }
        Ok(())
    }
}
