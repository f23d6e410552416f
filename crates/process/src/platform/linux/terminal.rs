//! Opens a pseudo terminal by its descriptors alone, so that no name is looked up.

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use std::io;
use std::os::fd::OwnedFd;

/// Flags of both ends.
const FLAGS: OpenptFlags = OpenptFlags::RDWR.union(OpenptFlags::NOCTTY).union(OpenptFlags::CLOEXEC);

/// Returns the master of a new pseudo terminal, close-on-exec.
pub(crate) fn open_master() -> io::Result<OwnedFd> {
    let master = openpt(FLAGS)?;
    unlockpt(&master)?;
    Ok(master)
}

/// Opens the slave, close-on-exec.
pub(crate) fn open_slave(master: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(ioctl_tiocgptpeer(master, FLAGS)?)
}
