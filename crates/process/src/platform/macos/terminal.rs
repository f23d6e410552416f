//! Opens a pseudo terminal by the name of its slave. Compiled for macOS, not run there.

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::io;
use std::os::fd::OwnedFd;

/// Returns the master and the slave of a new pseudo terminal, both close-on-exec.
pub(crate) fn open_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    // A command that starts at this moment would inherit it. Only this thread starts commands.
    fcntl_setfd(&master, FdFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok((master, open(name, flags, Mode::empty())?))
}
