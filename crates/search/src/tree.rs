//! File access, deadline and cancellation of the engine. The callers implement and set them.

use rustix::fs::{Mode, OFlags, openat};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// File access inside a root.
///
/// The engine discovers directories by walking, and opens each of them once or a few times, from several
/// threads. It opens the entries of a directory through that directory's handle.
pub trait Tree: Sync {
    /// Returns the root, absolute and canonical. Ignore rules of the directories above are read from this path.
    fn path(&self) -> &Path;

    /// Returns true if a name in a directory, which is relative to the root, counts as missing, so that listings
    /// leave it out. By default no name does.
    fn conceals(&self, _directory: &Path, _name: &OsStr) -> bool {
        false
    }

    /// Opens a regular file relative to the root for reading. Never follows a link, and never blocks,
    /// regardless of the file type.
    ///
    /// # Errors
    /// Errors of open(2); `InvalidInput` if it is not a regular file.
    fn open_file(&self, relative: &Path) -> io::Result<File>;

    /// Opens a directory relative to the root for reading. The empty path is the root. Never follows a link.
    ///
    /// # Errors
    /// Errors of open(2); `NotADirectory` if it is not a directory.
    fn open_directory(&self, relative: &Path) -> io::Result<File>;

    /// Opens a directory by its name in a directory returned by [`Tree::open_directory`] or by this function.
    /// Never follows a link.
    ///
    /// # Errors
    /// Errors of open(2); `NotADirectory` if it is not a directory, or is a link.
    fn open_directory_in(&self, directory: &File, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(directory, name, flags, Mode::empty())?))
    }

    /// Opens a regular file by its name in a directory returned by [`Tree::open_directory`].
    ///
    /// The listing reported a regular file. If it was exchanged for a link, the open fails. A FIFO that took
    /// its place returns no bytes and does not block.
    ///
    /// # Errors
    /// Errors of open(2).
    fn open_in(&self, directory: &File, name: &OsStr) -> io::Result<File> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(File::from(openat(directory, name, flags, Mode::empty())?))
    }
}

/// Deadline and cancellation of a search.
#[derive(Debug, Clone)]
pub struct Stop {
    /// Time at which the search returns the results found so far.
    pub deadline: Instant,
    /// Set by the caller to stop without a result.
    pub cancelled: Arc<AtomicBool>,
}

impl Stop {
    /// Creates a condition that stops at `deadline`. Not canceled.
    #[must_use]
    pub fn at(deadline: Instant) -> Self {
        Self { deadline, cancelled: Arc::new(AtomicBool::new(false)) }
    }

    /// Whether the caller canceled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Whether the deadline passed or the caller canceled. Takes about 30 ns: cheap enough to check for every
    /// file and every matching line.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.is_cancelled() || self.deadline <= Instant::now()
    }
}
