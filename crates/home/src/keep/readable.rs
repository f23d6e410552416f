//! Opens a directory whose entries are to be deleted. Called by `trees`.
//!
//! On Linux, a directory that its owner may not read or write becomes accessible first. Elsewhere such a directory is
//! not deleted.

use super::handles::open_dir;
use crate::platform::{make_accessible, make_writable};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Opens a directory whose entries are to be deleted. Makes it accessible to its owner first if necessary.
pub(super) fn open_readable(at: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let opened = open_dir(at, name, false);
    if let Ok(dir) = &opened {
        make_writable(dir);
    } else if matches!(opened, Err(Errno::ACCESS)) {
        make_accessible(at, name)?;
        return open_dir(at, name, false);
    }
    opened
}
