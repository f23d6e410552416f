//! Opens a pseudo terminal by the name of its slave. Compiled for macOS, not run there.

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::io;
use std::os::fd::OwnedFd;

/// Returns the master of a new pseudo terminal, close-on-exec.
pub(crate) fn open_master() -> io::Result<OwnedFd> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    // A command that starts at this moment would inherit it. Only this thread starts commands.
    fcntl_setfd(&master, FdFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    Ok(master)
}

/// Opens the slave, close-on-exec.
pub(crate) fn open_slave(master: &OwnedFd) -> io::Result<OwnedFd> {
    let name = ptsname(master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(open(name, flags, Mode::empty())?)
}
