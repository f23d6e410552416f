//! The names of [`super`] for Linux.

/// False: the directory of a file is watched, because every replacement of the file is a new inode.
pub(crate) const WATCHES_FILES: bool = false;
