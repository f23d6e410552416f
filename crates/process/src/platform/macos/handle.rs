//! Identity of a child by process id, which belongs to the child until it is reaped. Compiled for macOS, not run there.

use super::process_facts;
use nix::sys::signal::Signal;
use rustix::process::Pid;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of a child, and whether the child was reaped.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pid: Pid,
    /// `None` if the child exited before it was read.
    started: Option<u64>,
    is_reaped: Arc<AtomicBool>,
}

impl Identity {
    #[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
    pub(crate) fn open(pid: Pid) -> io::Result<Self> {
        let facts = process_facts(pid.as_raw_nonzero().get().unsigned_abs());
        let started = facts.map(|facts| facts.started);
        Ok(Self { pid, started, is_reaped: Arc::default() })
    }

    /// Returns the start time of the child, which its commands have in their environment.
    pub(crate) fn started(&self) -> Option<u64> {
        self.started
    }

    /// Sends a signal. Succeeds if the process has already exited.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        // Until the child is reaped, the number belongs to it.
        if self.is_reaped.load(Ordering::SeqCst) {
            return Ok(());
        }
        let pid = nix::unistd::Pid::from_raw(self.pid.as_raw_nonzero().get());
        match nix::sys::signal::kill(pid, signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Notes that the child was reaped. From then on the number may belong to another process.
    pub(crate) fn note_reaped(&self) {
        self.is_reaped.store(true, Ordering::SeqCst);
    }

    #[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
    pub(crate) fn watch(&self) -> io::Result<ExitWatch> {
        Ok(ExitWatch { identity: self.clone() })
    }
}

/// Waits for the exit of one process by SIGCHLD and a check that does not reap.
#[derive(Debug)]
pub(crate) struct ExitWatch {
    identity: Identity,
}

impl ExitWatch {
    pub(crate) async fn exited(&self) -> io::Result<()> {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        use tokio::signal::unix::{SignalKind, signal};

        // Registered before the first check, so that no exit is missed between the two.
        let mut child_changed = signal(SignalKind::child())?;
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while !self.identity.is_reaped.load(Ordering::SeqCst)
            && waitid(WaitId::Pid(self.identity.pid), look)?.is_none()
        {
            child_changed.recv().await;
        }
        Ok(())
    }
}
