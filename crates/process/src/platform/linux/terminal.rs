//! Opens a pseudo terminal by its descriptors alone, so that no name is looked up.

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use std::io;
use std::os::fd::OwnedFd;

/// Returns the master and the slave of a new pseudo terminal, both close-on-exec.
pub(crate) fn open_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    unlockpt(&master)?;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    Ok((master, slave))
}
