//! Identity of a directory, which tells whether it was replaced. Recorded by `plan`, `overlay` and `spawn`, checked by
//! `mounts` and `overlay`.

use rustix::fs::fstat;
use std::io;
use std::os::fd::AsFd;

/// Device and inode of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirectoryId {
    device: u64,
    inode: u64,
}

impl DirectoryId {
    /// Reads the numbers of an open directory.
    pub(crate) fn of(directory: impl AsFd) -> io::Result<Self> {
        let stat = fstat(directory)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino })
    }
}
