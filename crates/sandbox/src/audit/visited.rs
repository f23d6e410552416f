//! The directories that the check after a command has read, so that the next check can be skipped if none of them
//! changed. Most commands change none: comparing a stamp costs a system call, reading a directory a dozen.

use super::stamp::Stamp;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of directories. With more of them every check is a full one.
const MAX_DIRECTORIES: usize = 2_000;

/// Granularity of change times, generously. A directory that changed more recently may change again without another
/// time.
pub(super) const GRANULARITY: Duration = Duration::from_millis(50);

/// Directories and their state from before they were read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Visited {
    directories: Vec<(PathBuf, Stamp)>,
    /// False if a directory is missing here, or changed so recently that its stamp proves nothing.
    counts: bool,
    started: Option<SystemTime>,
}

impl Visited {
    /// Starts a check.
    pub(crate) fn start() -> Self {
        Self { directories: Vec::new(), counts: true, started: Some(SystemTime::now()) }
    }

    /// Adds an open directory. To be called before it is read: a change in between is then seen as one.
    pub(crate) fn note(&mut self, path: &Path, directory: impl AsFd) {
        self.add(path, Stamp::of_open(directory));
    }

    /// Adds a file that leads to a directory. To be called before it is read.
    pub(crate) fn note_name(&mut self, root: impl AsFd, path: &Path) {
        self.add(path, Stamp::at(root, path));
    }

    fn add(&mut self, path: &Path, stamp: Option<Stamp>) {
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

    /// True if every directory under `root` is as it was before it was read. An absolute path is outside of `root`.
    pub(crate) fn is_unchanged(&self, root: impl AsFd) -> bool {
        self.counts
            && self.directories.iter().all(|(path, stamp)| {
                let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
                Stamp::at(&root, path) == Some(*stamp)
            })
    }
}
