//! The daemon's process on Linux.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags};
use std::os::fd::OwnedFd;

/// The daemon's process, held by a pidfd, because its process id may be reused.
pub(crate) struct DaemonProcess(OwnedFd);

impl DaemonProcess {
    pub(crate) fn find(pid: u64) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok().map(Self)
    }

    pub(crate) fn has_ended(&self) -> bool {
        let mut watched = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut watched, Some(&Timespec::default())).is_ok_and(|ready| ready != 0)
    }
}
