//! Path of this program's executable, as in the directory for Linux.

use std::io;
use std::path::{Path, PathBuf};

/// Path of the running executable, with its identity at the start. This system cannot execute a file through a
/// descriptor, so a replaced file is detected and refused instead. Compiled for macOS, not run there.
#[derive(Debug)]
pub struct SelfExe {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

impl SelfExe {
    /// Records the running executable. Call it early: a replacement is detected from then on.
    ///
    /// # Errors
    /// The path of the executable is unknown, or the file is gone.
    pub fn open() -> io::Result<Self> {
        let path = std::env::current_exe()?;
        let device_and_inode = identity(&path)?;
        Ok(Self { path, device_and_inode })
    }

    /// Returns the path by which a child of this process opens the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns false if the path leads to another file.
    pub(crate) fn is_unchanged(&self) -> bool {
        identity(&self.path).is_ok_and(|now| now == self.device_and_inode)
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;

    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}
