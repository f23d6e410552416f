//! Why a path was refused, and what kind of thing a path names.

use std::{fmt, io};

/// Why a path beneath a root could not be used. One variant per answer that a caller gives.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The path, or a symlink on it, leads outside the root, or it could not be shown that it does
    /// not.
    #[error("path escapes the root directory")]
    Escapes,
    /// Nothing has this name; also when a component before the last one is not a directory.
    #[error("no such file or directory")]
    NotFound,
    /// The path names a directory where a file is needed.
    #[error("is a directory")]
    IsDirectory,
    /// The path names something that is neither a regular file nor a directory. It was not read.
    #[error("not a regular file ({kind})")]
    NotRegular {
        /// What it is.
        kind: Kind,
    },
    /// The system refused for another reason.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Why a file beneath a root was not written. What was there is there still, unless the system failed
/// after the name had its new content already.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The path cannot be used.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The file is larger than the caller reads.
    #[error("file is too large ({len} bytes)")]
    TooLarge {
        /// Its size in bytes.
        len: u64,
    },
    /// Somebody else changed, replaced, created or removed the file meanwhile.
    #[error("file changed meanwhile")]
    Changed,
    /// Others held the file, or replaced it all the time, for as long as we wait.
    #[error("file is locked")]
    Locked,
    /// The caller does not want it any more.
    #[error("given up")]
    GivenUp,
    /// The system refused.
    #[error("{call}: {source}")]
    Io {
        /// What was refused: `open`, `read`, `write` or `rename`.
        call: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl From<io::Error> for WriteError {
    /// For looking at a file that is open or about to be.
    fn from(source: io::Error) -> Self {
        Self::Io { call: "open", source }
    }
}

/// What a path names.
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
    /// Something that this system does not name.
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
