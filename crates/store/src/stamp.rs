//! Which file it is, and of when: whether somebody has put another one in its place, without reading it.
//! Used by [`crate::Files`] and by the replacement.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Two files with one stamp are the same file with the same content. It says nothing of a name: renaming a
/// file leaves its stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(file: &fs::Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
        }
    }

    /// Of what stands at the path; `None` if there is nothing to be had.
    pub(crate) fn at_blocking(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|found| Self::of(&found))
    }
}
