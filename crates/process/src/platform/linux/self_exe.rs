//! Open handle of this program's executable. The supervisor starts workers from it and the command line starts the
//! daemon from it.

use std::io;
use std::path::{Path, PathBuf};

/// Open handle of the running executable, so that an upgrade on disk never mixes versions: a child runs the same file
/// as this process, even if the file's name was replaced or removed.
#[derive(Debug)]
pub struct SelfExe {
    path: PathBuf,
    /// Keeps the file, and with it the number in `path`, valid. Close-on-exec is no problem: the kernel resolves the
    /// path before it closes descriptors.
    file: std::fs::File,
}

impl SelfExe {
    /// Opens the running executable.
    ///
    /// # Errors
    /// `/proc` is not mounted, or no descriptor is left.
    pub fn open() -> io::Result<Self> {
        use std::os::fd::AsRawFd;

        let file = std::fs::File::open("/proc/self/exe")?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        Ok(Self { path, file })
    }

    /// Returns the path by which a child of this process opens the file. Not valid in other processes.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the open file, for an access filter that must allow its execution.
    #[must_use]
    pub fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.file)
    }

    /// Always true: the file is open.
    pub(crate) fn is_unchanged(&self) -> bool {
        true
    }
}
