//! Directories that the check after a command has read. If none of them changed, the next check is skipped. Most
//! commands change none: comparing a stamp takes one system call, reading a directory about a dozen.

use super::stamp::InodeStamp;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of directories. With more of them, no check is skipped.
const MAX_DIRECTORIES: usize = 2_000;

/// Upper bound for the granularity of change times. A directory that changed more recently may change again and keep
/// the same change time.
pub(crate) const GRANULARITY: Duration = Duration::from_millis(50);

/// Directories and their state before they were read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Visited {
    directories: Vec<(PathBuf, InodeStamp)>,
    /// False if a directory is missing here, or changed so recently that its stamp proves nothing.
    counts: bool,
    started: Option<SystemTime>,
}

impl Visited {
    /// Starts a check.
    pub(crate) fn start() -> Self {
        Self { directories: Vec::new(), counts: true, started: Some(SystemTime::now()) }
    }

    /// Adds an open directory. Call it before reading the directory, so that a change in between is detected.
    pub(crate) fn note(&mut self, path: &Path, directory: impl AsFd) {
        self.add(path, InodeStamp::of_open(directory));
    }

    /// Adds a file that names a directory. Call it before reading the file.
    pub(crate) fn note_name(&mut self, root: impl AsFd, path: &Path) {
        self.add(path, InodeStamp::at(root, path));
    }

    fn add(&mut self, path: &Path, stamp: Option<InodeStamp>) {
        let newest = self.started.and_then(|now| now.checked_sub(GRANULARITY));
        let newest = newest.and_then(|newest| newest.duration_since(UNIX_EPOCH).ok());
        match stamp {
            Some(stamp) if self.directories.len() < MAX_DIRECTORIES => {
                self.counts &= newest.is_some_and(|newest| stamp.changed_before(newest));
                self.directories.push((path.to_owned(), stamp));
            }
            _ => self.counts = false,
        }
    }

    /// Returns true if every directory under `root` is unchanged since before it was read. An absolute path is
    /// outside of `root`.
    pub(crate) fn is_unchanged(&self, root: impl AsFd) -> bool {
        self.counts
            && self.directories.iter().all(|(path, stamp)| {
                let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
                InodeStamp::at(&root, path) == Some(*stamp)
            })
    }
}
