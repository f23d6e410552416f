//! Identity and time of a file, to detect a replacement without reading it. Used by the loader and by
//! `quackd-rubber-duck`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Equal stamps mean the same file with the same content. The stamp does not depend on the name, so a rename
/// keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl FileStamp {
    pub(crate) fn of(file: &fs::Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
        }
    }

    /// Returns the stamp of whatever is at the path; `None` if it cannot be inspected.
    #[must_use]
    pub fn at_blocking(path: &Path) -> Option<Self> {
        fs::symlink_metadata(path).ok().map(|metadata| Self::of(&metadata))
    }
}
