//! Handle of a direct child. The supervisor watches its workers with it, and [`crate::run`] its shell.

use crate::wait::reap;
use crate::{Exit, Usage};
use nix::sys::signal::Signal;
use rustix::process::Pid;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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
    #[cfg(target_os = "linux")]
    pidfd: OwnedFd,
    /// Set when the child is reaped. Later callers get the same result.
    exit: OnceLock<(Exit, Usage)>,
}

impl ProcessHandle {
    /// Creates a handle for a direct child that only this handle will reap.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_child(pid: u32) -> io::Result<Self> {
        use rustix::process::{PidfdFlags, pidfd_open};

        let pid = to_pid(pid)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Self { child: Arc::new(ReapState { pid, pidfd, exit: OnceLock::new() }) })
    }

    /// Creates a handle for a direct child that only this handle will reap.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn of_child(pid: u32) -> io::Result<Self> {
        Ok(Self { child: Arc::new(ReapState { pid: to_pid(pid)?, exit: OnceLock::new() }) })
    }

    /// Process id, for logs and display. Send signals through [`ProcessHandle::signal`].
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Resolves when the process has exited. Does not reap it. Needs a tokio runtime with I/O.
    ///
    /// # Errors
    /// No descriptor or no event queue entry is left, or the runtime is shutting down.
    pub async fn exited(&self) -> io::Result<()> {
        ExitWatch::new(self)?.exited().await
    }

    /// Sends a signal. Succeeds if the process has already exited.
    ///
    /// # Errors
    /// The process runs with other credentials, or a system call filter forbids the call.
    #[cfg(target_os = "linux")]
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let signal = rustix::process::Signal::from_named_raw(signal as i32)
            .ok_or(io::ErrorKind::InvalidInput)?;
        match rustix::process::pidfd_send_signal(&self.child.pidfd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a signal. Succeeds if the process has already exited.
    ///
    /// # Errors
    /// The process runs with other credentials.
    #[cfg(not(target_os = "linux"))]
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        // Until the child is reaped, the number belongs to it.
        if self.child.exit.get().is_some() {
            return Ok(());
        }
        let pid = nix::unistd::Pid::from_raw(self.child.pid.as_raw_nonzero().get());
        match nix::sys::signal::kill(pid, signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
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
        Ok(reaped.map(|reaped| self.child.exit.get_or_init(|| reaped).0))
    }

    /// Resources that the process used; `None` until it was reaped.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.child.exit.get().map(|(_, usage)| *usage)
    }
}

/// The pidfd, which is readable when the process has exited.
#[cfg(target_os = "linux")]
impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.child.pidfd.as_fd()
    }
}

/// Waits for the exit of one process, any number of times, with one registration at the runtime.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct ExitWatch {
    pidfd: tokio::io::unix::AsyncFd<OwnedFd>,
}

#[cfg(target_os = "linux")]
impl ExitWatch {
    /// Registers with the runtime's event queue. The pidfd is duplicated, because one descriptor can
    /// be registered only once and handles are cloned.
    #[expect(unsafe_code, reason = "registering a descriptor with the runtime has no safe form")]
    pub(crate) fn new(process: &ProcessHandle) -> io::Result<Self> {
        use tokio::io::{Interest, unix::AsyncFd};

        let pidfd = process.child.pidfd.try_clone()?;
        // SAFETY: the registered object owns the open descriptor, always returns the same number, and closes it only
        // when it is dropped.
        let pidfd = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?;
        Ok(Self { pidfd })
    }

    /// Resolves when the process has exited. A pidfd stays readable from then on.
    pub(crate) async fn exited(&self) -> io::Result<()> {
        self.pidfd.readable().await?.retain_ready();
        Ok(())
    }
}

/// Waits for the exit of one process by SIGCHLD and a check that does not reap. Compiled for macOS, not run
/// there.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct ExitWatch {
    process: ProcessHandle,
}

#[cfg(not(target_os = "linux"))]
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
            && waitid(WaitId::Pid(self.process.child.pid), look)?.is_none()
        {
            child_changed.recv().await;
        }
        Ok(())
    }
}

/// Converts a number to the type that system calls take.
pub(crate) fn to_pid(pid: u32) -> io::Result<Pid> {
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}
