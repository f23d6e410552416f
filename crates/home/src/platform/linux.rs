//! The names of [`super`] for Linux. Handles without access rights (`O_PATH`) keep a link or a FIFO in place of the
//! expected file from being followed or waited for.

use rustix::fs::{Mode, OFlags, chmod, fstat, open, openat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

/// False: the rule of Linux chooses the state directory.
pub(crate) const HAS_APP_SUPPORT: bool = false;

/// Bytes that `sun_path` holds besides its NUL; see unix(7).
pub(crate) const MAX_SOCKET_BYTES: usize = 107;

/// Opens a regular file, and never a FIFO: that could block, and it wakes the writer.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let handle = File::from(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    if !handle.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }

    // The path of the handle leads to the inspected file, whatever the name leads to now.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = open(format!("/proc/self/fd/{}", handle.as_raw_fd()), flags, Mode::empty())?;
    Ok(file.into())
}

/// Gives the owner all rights to the directory `name`, which could not be opened. A link is an error.
pub(crate) fn make_accessible(at: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    make_writable(&openat(at, name, flags, Mode::empty())?);
    Ok(())
}

/// Gives the owner all rights to a directory. A failure shows when an entry is deleted.
pub(crate) fn make_writable(dir: &OwnedFd) {
    let is_writable = fstat(dir).is_ok_and(|stat| stat.st_mode & 0o700 == 0o700);
    if !is_writable {
        chmod(format!("/proc/self/fd/{}", dir.as_raw_fd()), Mode::RWXU).ok();
    }
}
