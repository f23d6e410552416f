//! Errors of paths and writes, and the kinds of files.

use std::{fmt, io};

/// Error of using a path under a root. One variant per answer of the caller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The path, or a symlink on it, leaves the root, or may leave it.
    #[error("path escapes the root directory")]
    Escapes,
    /// The path does not exist, or a component before the last one is not a directory.
    #[error("no such file or directory")]
    NotFound,
    /// The path names a directory, but a file is required.
    #[error("is a directory")]
    IsDirectory,
    /// The path names a node that is neither a regular file nor a directory. It was not read.
    #[error("not a regular file ({kind})")]
    NotRegular {
        /// Kind of the node.
        kind: Kind,
    },
    /// Any other error of the system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Error of writing a file under a root. The old content is intact, unless a system call failed after the name
/// already had its new content.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The path cannot be used.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The file is larger than the caller's limit.
    #[error("file is too large ({len} bytes)")]
    TooLarge {
        /// Size of the file in bytes.
        len: u64,
    },
    /// Another program changed, replaced, created or removed the file.
    #[error("file was changed by another program")]
    Changed,
    /// Other workers held or replaced the file during the whole wait.
    #[error("file is locked")]
    Locked,
    /// The caller canceled the write.
    #[error("given up")]
    GivenUp,
    /// A system call failed.
    #[error("{call}: {source}")]
    Io {
        /// Failed operation: `open`, `read`, `write` or `rename`.
        call: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl From<io::Error> for WriteError {
    /// Uses `open` as the failed operation.
    fn from(source: io::Error) -> Self {
        Self::Io { call: "open", source }
    }
}

/// Kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A kind that this system does not define.
    Unknown,
}

impl Kind {
    /// Reads the file type bits of `st_mode`, which have the same values on every Unix (inode(7)).
    pub(crate) fn from_mode(mode: u32) -> Self {
        match mode & 0o170_000 {
            0o100_000 => Self::File,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            0o020_000 => Self::CharacterDevice,
            0o060_000 => Self::BlockDevice,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Symlink => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::CharacterDevice => "character device",
            Self::BlockDevice => "block device",
            Self::Unknown => "unknown kind",
        })
    }
}
