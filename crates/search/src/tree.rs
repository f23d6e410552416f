//! How the engine reaches files, and when it gives up. Implemented and filled in by callers.

use rustix::fs::{Mode, OFlags, openat};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// How a search reaches files beneath a root.
///
/// The engine names directories by walking and opens each of them once or a few times, from several
/// threads. What it opens in a directory it opens by that directory's handle.
pub trait Tree: Sync {
    /// The root, absolute and canonical. Rules of directories above it are read from there.
    fn path(&self) -> &Path;

    /// Opens a regular file relative to the root for reading. Never follows a link, never blocks on
    /// what the file is.
    ///
    /// # Errors
    /// What open(2) says; `InvalidInput` if it is not a regular file.
    fn open_file(&self, relative: &Path) -> io::Result<File>;

    /// Opens a directory relative to the root for reading; the empty path is the root. Never follows a
    /// link.
    ///
    /// # Errors
    /// What open(2) says; `NotADirectory` if it is none.
    fn open_directory(&self, relative: &Path) -> io::Result<File>;

    /// Opens by its name a directory in one that [`Tree::open_directory`] or this has given. Never follows
    /// a link.
    ///
    /// # Errors
    /// What open(2) says; `NotADirectory` if it is none, or a link.
    fn open_directory_in(&self, directory: &File, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(directory, name, flags, Mode::empty())?))
    }

    /// Opens by its name a regular file in a directory that [`Tree::open_directory`] has given.
    ///
    /// The listing has said that it is a regular file. If it was exchanged for a link the open fails; a
    /// FIFO that took its place gives no bytes and does not block.
    ///
    /// # Errors
    /// What open(2) says.
    fn open_in(&self, directory: &File, name: &OsStr) -> io::Result<File> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(File::from(openat(directory, name, flags, Mode::empty())?))
    }
}

/// When to give up.
#[derive(Debug, Clone)]
pub struct Stop {
    /// When to stop with what was found so far.
    pub deadline: Instant,
    /// Set by the caller to stop without a result.
    pub cancelled: Arc<AtomicBool>,
}

impl Stop {
    /// Ends at `deadline`; nothing cancels it yet.
    #[must_use]
    pub fn at(deadline: Instant) -> Self {
        Self { deadline, cancelled: Arc::new(AtomicBool::new(false)) }
    }

    /// Whether the caller wants no result any more.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Whether it is time to end. Cheap enough (about 30 ns) to be asked for every file and every
    /// matching line.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.is_cancelled() || self.deadline <= Instant::now()
    }
}
