//! Opens a directory whose entries are to be deleted. Called by `trees`.
//!
//! On Linux, a directory that its owner may not read or write becomes accessible first. Other systems have no handle
//! without access rights (`O_PATH`), so such a directory is not deleted there.

use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Opens a directory whose entries are to be deleted.
#[cfg(not(target_os = "linux"))]
pub(super) fn open_readable(at: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    super::removal::open_dir(at, name, false)
}

#[cfg(target_os = "linux")]
pub(super) use linux::open_readable;

#[cfg(target_os = "linux")]
mod linux {
    use super::{BorrowedFd, CStr, Errno, OwnedFd};
    use rustix::fs::{Mode, OFlags, openat};
    use std::os::fd::AsRawFd as _;

    /// Opens a directory whose entries are to be deleted. Makes it accessible to its owner first if necessary.
    pub(in super::super) fn open_readable(
        at: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<OwnedFd, Errno> {
        let opened = super::super::removal::open_dir(at, name, false);
        if let Ok(dir) = &opened {
            make_writable(dir);
        } else if matches!(opened, Err(Errno::ACCESS)) {
            // Use a handle, so that a link in place of the directory is not followed.
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            make_writable(&openat(at, name, flags, Mode::empty())?);
            return super::super::removal::open_dir(at, name, false);
        }
        opened
    }

    /// Gives the owner all rights to a directory. A failure shows when an entry is deleted.
    fn make_writable(dir: &OwnedFd) {
        let is_writable = rustix::fs::fstat(dir).is_ok_and(|stat| stat.st_mode & 0o700 == 0o700);
        if !is_writable {
            rustix::fs::chmod(format!("/proc/self/fd/{}", dir.as_raw_fd()), Mode::RWXU).ok();
        }
    }
}
