//! Which state of which file was seen, so that a later change by others can be noticed.

use serde::{Deserialize, Serialize};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// A state of a file. Two equal ones are the same file with the same content, unless somebody changed
/// it and set its size and time back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileVersion {
    file: FileId,
    len: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

/// A file on this machine, as long as it is open or has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileVersion {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            file: FileId { device: metadata.dev(), inode: metadata.ino() },
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }

    /// The same from a look at a name.
    pub(crate) fn of_name(metadata: &cap_std::fs::Metadata) -> Self {
        use cap_std::fs::MetadataExt as _;
        Self {
            file: FileId { device: metadata.dev(), inode: metadata.ino() },
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }

    /// Device and inode: which file it is, whatever its names are.
    #[must_use]
    pub fn device_inode(&self) -> (u64, u64) {
        (self.file.device, self.file.inode)
    }

    pub(crate) fn file(&self) -> FileId {
        self.file
    }

    /// Size in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}
