//! Identity of a child by pidfd.

use nix::sys::signal::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Identity of a child in addition to its number.
#[derive(Debug)]
pub(crate) struct Identity(OwnedFd);

impl Identity {
    pub(crate) fn open(pid: Pid) -> io::Result<Self> {
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Sends a signal. Succeeds if the process has already exited.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        let signal = rustix::process::Signal::from_named_raw(signal as i32)
            .ok_or(io::ErrorKind::InvalidInput)?;
        match pidfd_send_signal(&self.0, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Notes that the child was reaped. A pidfd never refers to another process, so nothing has to change.
    #[expect(clippy::unused_self, reason = "as on macOS")]
    pub(crate) fn note_reaped(&self) {}

    /// `None`: the monitor of a worker or the supervisor ends its commands, and needs no start time.
    #[expect(clippy::unused_self, reason = "as on macOS")]
    pub(crate) fn started(&self) -> Option<u64> {
        None
    }

    /// Registers with the runtime's event queue. The pidfd is duplicated, because one descriptor can
    /// be registered only once and handles are cloned.
    #[expect(unsafe_code, reason = "registering a descriptor with the runtime has no safe form")]
    pub(crate) fn watch(&self) -> io::Result<ExitWatch> {
        use tokio::io::{Interest, unix::AsyncFd};

        let pidfd = self.0.try_clone()?;
        // SAFETY: the registered object owns the open descriptor, always returns the same number, and closes it only
        // when it is dropped.
        let pidfd = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?;
        Ok(ExitWatch { pidfd })
    }
}

impl AsFd for Identity {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits for the exit of one process, any number of times, with one registration at the runtime.
#[derive(Debug)]
pub(crate) struct ExitWatch {
    pidfd: tokio::io::unix::AsyncFd<OwnedFd>,
}

impl ExitWatch {
    /// Resolves when the process has exited. A pidfd stays readable from then on.
    pub(crate) async fn exited(&self) -> io::Result<()> {
        self.pidfd.readable().await?.retain_ready();
        Ok(())
    }
}
