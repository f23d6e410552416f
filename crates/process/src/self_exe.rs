//! This program's own executable, held open. The supervisor starts workers from it and the command
//! line starts the daemon from it.

use std::io;
use std::path::{Path, PathBuf};

/// An open handle to the running executable, so that an upgrade on disk never mixes versions: a child
/// runs the very file that this process runs, also when its name has been replaced or removed.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub struct SelfExe {
    path: PathBuf,
    /// Keeps the file, and with it the number in `path`. Close-on-exec is fine: the kernel resolves
    /// the path before it closes descriptors.
    file: std::fs::File,
}

#[cfg(target_os = "linux")]
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

    /// Where a child of this process finds the file. Means nothing in other processes.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file, for a filter that must allow it to be executed.
    #[must_use]
    pub fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.file)
    }

    /// The file cannot have been replaced: it is open.
    pub(crate) fn is_unchanged(&self) -> bool {
        true
    }
}

/// The running executable by name, with the identity that it had at the start. A file cannot be
/// executed through a descriptor here, so a replaced one is noticed and refused instead. Type-checked
/// for macOS, not run there.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub struct SelfExe {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

#[cfg(not(target_os = "linux"))]
impl SelfExe {
    /// Notes the running executable. Call it early: a replacement is noticed from then on.
    ///
    /// # Errors
    /// The file's name is not known or it is gone.
    pub fn open() -> io::Result<Self> {
        let path = std::env::current_exe()?;
        let device_and_inode = identity(&path)?;
        Ok(Self { path, device_and_inode })
    }

    /// Where a child of this process finds the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// False once the name leads to another file.
    pub(crate) fn is_unchanged(&self) -> bool {
        identity(&self.path).is_ok_and(|now| now == self.device_and_inode)
    }
}

#[cfg(not(target_os = "linux"))]
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;

    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}
