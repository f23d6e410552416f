//! The names of [`super`] for macOS, which has no handles without access rights. Compiled, not run there.

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// True: the rule of macOS chooses the state directory, in `Library/Application Support`.
pub(crate) const HAS_APP_SUPPORT: bool = true;

/// Bytes that `sun_path` holds besides its NUL.
pub(crate) const MAX_SOCKET_BYTES: usize = 103;

/// Opens a regular file. A FIFO that replaces it after the check is opened without waiting.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Always the error of a directory that may not be read: such a directory is not deleted.
pub(crate) fn make_accessible(_at: BorrowedFd<'_>, _name: &CStr) -> Result<(), Errno> {
    Err(Errno::ACCESS)
}

/// Changes nothing, so the entries of a directory that may not be written are not deleted.
pub(crate) fn make_writable(_dir: &OwnedFd) {}
