//! Systems that cannot tell whether a read waits for a disk: no file is read without waiting.

use crate::access::Access;
use crate::version::FileVersion;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

/// Whether files of a root can be read here. They cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CachedReads;

impl CachedReads {
    /// Returns what the file system of a directory allows.
    pub(crate) fn of(_directory: impl AsFd) -> Self {
        Self
    }
}

/// Opens nothing.
pub(crate) fn open_directory(_path: &Path) -> Option<File> {
    None
}

/// Reads nothing.
pub(crate) fn read(
    _access: &Access,
    _reads: CachedReads,
    _relative: &Path,
    _max: usize,
) -> Option<(Vec<u8>, FileVersion)> {
    None
}
