//! Errors of reading and writing the durable files: one variant per decision of the supervisor.

use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A durable file could not be read or written. Cheap to clone, because one failed save answers many
/// requests.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The disk or the quota is full. The request fails; the next one may succeed.
    #[error("disk is full: cannot write {path}")]
    Full {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call.
        source: Arc<io::Error>,
    },
    /// Permission denied or read-only file system. Every save fails until the user changes that.
    #[error("no permission to write {path}")]
    ReadOnly {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call.
        source: Arc<io::Error>,
    },
    /// The file exists but cannot be read now. It may be valid, so the daemon must not overwrite it.
    #[error("cannot read {path}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call.
        source: Arc<io::Error>,
    },
    /// A newer program wrote the file. It is unchanged, and the daemon must not overwrite it.
    #[error("{path} was written by a newer version (format {found}, this one knows {known})")]
    TooNew {
        /// Path of the file.
        path: PathBuf,
        /// Format version in the file.
        found: u64,
        /// Newest supported format version.
        known: u64,
    },
    /// The new content would be too large to be loaded again.
    #[error("{path} would grow to {bytes} bytes, more than the {limit} allowed")]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// Size of the new content, in bytes.
        bytes: usize,
        /// Maximum size, in bytes.
        limit: u64,
    },
    /// Too many requests are waiting for the disk.
    #[error("too many changes wait for the disk")]
    Busy,
    /// The writer thread has stopped: the daemon is shutting down.
    #[error("the writer has stopped")]
    Stopped,
    /// Any other error of a system call.
    #[error("cannot write {path}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call.
        source: Arc<io::Error>,
    },
}

impl StoreError {
    /// Returns the error of a write to `path` that failed with `source`.
    #[must_use]
    pub fn write(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        let errno = Errno::from_io_error(&source);
        let source = Arc::new(source);
        match errno {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Self::Full { path, source },
            Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) => Self::ReadOnly { path, source },
            _ => Self::Io { path, source },
        }
    }

    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source: Arc::new(source) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_system_becomes_the_decision_that_it_calls_for() {
        let table = [
            (Errno::NOSPC, "disk is full: cannot write /m"),
            (Errno::DQUOT, "disk is full: cannot write /m"),
            (Errno::FBIG, "disk is full: cannot write /m"),
            (Errno::ROFS, "no permission to write /m"),
            (Errno::ACCESS, "no permission to write /m"),
            (Errno::PERM, "no permission to write /m"),
            (Errno::IO, "cannot write /m"),
            (Errno::MFILE, "cannot write /m"),
        ];
        for (errno, text) in table {
            assert_eq!(StoreError::write(Path::new("/m"), errno.into()).to_string(), text);
        }
    }
}
