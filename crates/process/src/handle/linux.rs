//! Handles by pidfd.

use super::ProcessHandle;
use nix::sys::signal::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Opens what identifies the child besides its number.
pub(super) fn open(pid: Pid) -> io::Result<OwnedFd> {
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

pub(super) type Identity = OwnedFd;

impl ProcessHandle {
    /// Sends a signal. Succeeds if the process has already exited.
    ///
    /// # Errors
    /// The process runs with other credentials, or a system call filter forbids the call.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let signal = rustix::process::Signal::from_named_raw(signal as i32)
            .ok_or(io::ErrorKind::InvalidInput)?;
        match rustix::process::pidfd_send_signal(&self.child.identity, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The pidfd, which is readable when the process has exited.
impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.child.identity.as_fd()
    }
}

/// Waits for the exit of one process, any number of times, with one registration at the runtime.
#[derive(Debug)]
pub(crate) struct ExitWatch {
    pidfd: tokio::io::unix::AsyncFd<OwnedFd>,
}

impl ExitWatch {
    /// Registers with the runtime's event queue. The pidfd is duplicated, because one descriptor can
    /// be registered only once and handles are cloned.
    #[expect(unsafe_code, reason = "registering a descriptor with the runtime has no safe form")]
    pub(crate) fn new(process: &ProcessHandle) -> io::Result<Self> {
        use tokio::io::{Interest, unix::AsyncFd};

        let pidfd = process.child.identity.try_clone()?;
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
