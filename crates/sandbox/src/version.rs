//! Identity and state of a file, to detect a later change by other programs.

use serde::{Deserialize, Serialize};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// State of a file. Equal states mean the same file with the same content, unless a program changed it and reset its
/// size and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileVersion {
    file: FileId,
    len: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

/// Identity of a file on this machine, valid while the file is open or has a name.
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

    /// Like [`FileVersion::of`], from the metadata of a name.
    pub(crate) fn of_name(metadata: &cap_std::fs::Metadata) -> Self {
        use cap_std::fs::MetadataExt as _;
        Self {
            file: FileId { device: metadata.dev(), inode: metadata.ino() },
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }

    /// Returns the device and inode, which do not depend on the file's names.
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
