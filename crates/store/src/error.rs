//! Why our files could not be read or kept: one variant per decision that the supervisor takes.

use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a file of ours could not be read or kept. Cheap to clone: one failed save answers many requests.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No room, or no more of it for us: the request fails, the next one may succeed.
    #[error("disk is full: cannot write {path}")]
    Full {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// We may not write there: nothing will succeed before a person changes that.
    #[error("no permission to write {path}")]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// The file is there and may be good, but the system cannot read it now. It was left untouched,
    /// so nothing may be written over it.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// The file is a newer program's. It was left untouched, and nothing may be written over it.
    #[error("{path} was written by a newer version (format {found}, this one knows {known})")]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The newest format that this program knows.
        known: u64,
    },
    /// It would become a file that we refuse to read.
    #[error("{path} would grow to {bytes} bytes, more than the {limit} allowed")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What it would take.
        bytes: usize,
        /// What is allowed.
        limit: u64,
    },
    /// More requests wait for the disk than may wait.
    #[error("too many changes wait for the disk")]
    Busy,
    /// The writer is gone: the daemon is about to end.
    #[error("the writer has stopped")]
    Stopped,
    /// The system failed in another way.
    #[error("cannot write {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: Arc<io::Error>,
    },
}

impl StoreError {
    pub(crate) fn write(path: &Path, source: io::Error) -> Self {
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
