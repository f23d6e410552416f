//! Opens names under a directory handle, in one of two ways. Called by `root`.
//!
//! On Linux the kernel resolves the whole path under the handle in one call, openat2(2). If that call is missing
//! (before 5.6) or forbidden (some container profiles), and on macOS, cap-std walks the path component by component
//! with handles. The walk is as safe and about half as fast. On macOS it has been compiled only, not run.

mod platform;

use crate::Kind;
use cap_std::fs::{Dir, MetadataExt as _, OpenOptions, OpenOptionsExt as _};
use platform::Kernel;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

pub(crate) use platform::DIRECTORY;

/// Flags for opening files for reading: a FIFO or a device must not block, and a terminal must not become the
/// controlling terminal. `O_NONBLOCK` has no effect on a regular file.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Treatment of symlinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// Followed while the path stays under the root by relative steps.
    Beneath,
    /// Refused with `ELOOP`. The component walk only refuses a link in the last place that existed before the open.
    /// In any case the opened file is under the root.
    Never,
}

/// A directory handle and the method of opening names under it.
#[derive(Debug)]
pub(crate) enum Access {
    /// One system call per path.
    Kernel(Kernel),
    /// One system call per component.
    Walk(Dir),
}

/// Kind and size of a name, read without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameInfo {
    pub(crate) kind: Kind,
    pub(crate) len: u64,
}

impl Access {
    /// Opens a directory handle for resolving names.
    pub(crate) fn open_directory(path: &Path) -> io::Result<File> {
        Ok(File::from(rustix::fs::open(path, DIRECTORY, Mode::empty())?))
    }

    /// Chooses the fastest method that works on this system.
    pub(crate) fn new(handle: File) -> Self {
        match Kernel::new(handle) {
            Ok(kernel) => Self::Kernel(kernel),
            Err(handle) => Self::walk(handle),
        }
    }

    /// Uses the component walk, even if the kernel supports openat2.
    pub(crate) fn walk(handle: File) -> Self {
        Self::Walk(Dir::from_std_file(handle))
    }

    /// Returns the directory handle.
    pub(crate) fn handle(&self) -> BorrowedFd<'_> {
        match self {
            Self::Kernel(kernel) => kernel.handle(),
            Self::Walk(dir) => dir.as_fd(),
        }
    }

    /// Opens `relative` for reading. Never blocks, even for a FIFO or a device.
    ///
    /// # Errors
    /// `EXDEV` if it is not under the root by relative steps, otherwise the errors of open(2).
    pub(crate) fn open(&self, relative: &Path, links: Links) -> io::Result<File> {
        match self {
            Self::Kernel(kernel) => kernel.open(relative, links),
            Self::Walk(dir) => {
                if links == Links::Never && self.stat(relative, links)?.kind == Kind::Symlink {
                    return Err(Errno::LOOP.into());
                }
                let mut options = OpenOptions::new();
                options.read(true).custom_flags(READ.bits().cast_signed());
                let file = dir.open_with(or_dot(relative), &options).map_err(escape_as_exdev)?;
                Ok(file.into_std())
            }
        }
    }

    /// Returns the kind and size of `relative` without opening it.
    ///
    /// # Errors
    /// Same as [`Access::open`].
    pub(crate) fn stat(&self, relative: &Path, links: Links) -> io::Result<NameInfo> {
        match self {
            Self::Kernel(kernel) => kernel.stat(relative, links),
            Self::Walk(dir) => {
                let metadata = match links {
                    Links::Beneath => dir.metadata(or_dot(relative)),
                    Links::Never => dir.symlink_metadata(or_dot(relative)),
                };
                let metadata = metadata.map_err(escape_as_exdev)?;
                Ok(NameInfo { kind: Kind::from_mode(metadata.mode()), len: metadata.len() })
            }
        }
    }
}

fn or_dot(relative: &Path) -> &Path {
    if relative.as_os_str().is_empty() { Path::new(".") } else { relative }
}

/// Converts cap-std's error for an escape, which is a permission error without an error number of the system.
fn escape_as_exdev(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
        Errno::XDEV.into()
    } else {
        error
    }
}
