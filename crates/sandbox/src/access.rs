//! The two ways of opening a name beneath a directory handle. Called by `root`.
//!
//! On Linux the kernel resolves the whole path beneath the handle in one call, openat2(2). Where
//! that call is missing (before 5.6) or forbidden (some container profiles), and on macOS, cap-std
//! walks the path component by component with handles, which is as safe and about twice as slow.
//! On macOS this has been compiled only, not run.

use crate::Kind;
use cap_std::fs::{Dir, MetadataExt as _, OpenOptions, OpenOptionsExt as _};
use rustix::fs::{Mode, OFlags};
#[cfg(target_os = "linux")]
use rustix::fs::{ResolveFlags, openat2};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
#[cfg(target_os = "linux")]
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// How often an open that lost against a rename is tried again. The kernel answers `EAGAIN` when a
/// rename anywhere races with a `..` in a symlink; there is no bound on how often that can happen.
#[cfg(target_os = "linux")]
const MAX_ATTEMPTS: usize = 8;

/// How files are opened for reading: a FIFO or a device must not block, a terminal must not become
/// ours. On a regular file `O_NONBLOCK` has no effect.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// What may happen at a symlink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// Followed as long as it stays beneath the root by relative steps.
    Beneath,
    /// Refused with `ELOOP`. The walk refuses a link in the last place only, and only if it was there
    /// before: what it opens is beneath the root in any case.
    Never,
}

/// A directory handle and the way of using it.
#[derive(Debug)]
pub(crate) enum Access {
    /// One system call per path.
    #[cfg(target_os = "linux")]
    Kernel(File),
    /// One system call per component.
    Walk(Dir),
}

/// What is known of a name without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) kind: Kind,
    pub(crate) len: u64,
}

impl Access {
    /// Opens a directory handle that serves for looking up names.
    pub(crate) fn open_directory(path: &Path) -> io::Result<File> {
        // O_PATH needs no read permission and cannot be used to list or change anything.
        #[cfg(target_os = "linux")]
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        #[cfg(not(target_os = "linux"))]
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Chooses the best way that works here.
    #[cfg(target_os = "linux")]
    pub(crate) fn new(handle: File) -> Self {
        match openat2_beneath(&handle, Path::new("."), OFlags::PATH, Links::Never) {
            Err(Errno::NOSYS | Errno::PERM) => Self::walk(handle),
            Ok(_) | Err(_) => Self::Kernel(handle),
        }
    }

    /// Chooses the best way that works here.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new(handle: File) -> Self {
        Self::walk(handle)
    }

    /// Uses the walk also where the kernel could do it.
    pub(crate) fn walk(handle: File) -> Self {
        Self::Walk(Dir::from_std_file(handle))
    }

    /// The directory handle itself.
    pub(crate) fn handle(&self) -> BorrowedFd<'_> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Kernel(handle) => handle.as_fd(),
            Self::Walk(dir) => dir.as_fd(),
        }
    }

    /// Opens `relative` for reading without ever blocking, whatever it is.
    ///
    /// # Errors
    /// `EXDEV` if it is not beneath the root by relative steps, else what open(2) says.
    pub(crate) fn open(&self, relative: &Path, links: Links) -> io::Result<File> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Kernel(handle) => Ok(openat2_beneath(handle, relative, READ, links)?),
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

    /// Says what `relative` is without opening it.
    ///
    /// # Errors
    /// As [`Access::open`].
    pub(crate) fn stat(&self, relative: &Path, links: Links) -> io::Result<Found> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Kernel(handle) => {
                let metadata =
                    openat2_beneath(handle, relative, OFlags::PATH, links)?.metadata()?;
                Ok(Found { kind: Kind::from_mode(metadata.mode()), len: metadata.len() })
            }
            Self::Walk(dir) => {
                let metadata = match links {
                    Links::Beneath => dir.metadata(or_dot(relative)),
                    Links::Never => dir.symlink_metadata(or_dot(relative)),
                };
                let metadata = metadata.map_err(escape_as_exdev)?;
                Ok(Found { kind: Kind::from_mode(metadata.mode()), len: metadata.len() })
            }
        }
    }
}

#[cfg(target_os = "linux")]
fn openat2_beneath(
    handle: &File,
    relative: &Path,
    flags: OFlags,
    links: Links,
) -> rustix::io::Result<File> {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let resolve = match links {
        Links::Beneath => beneath,
        Links::Never => beneath | ResolveFlags::NO_SYMLINKS,
    };
    let (path, flags) = (or_dot(relative), flags | OFlags::CLOEXEC);
    let mut result = openat2(handle, path, flags, Mode::empty(), resolve);
    for _ in 1..MAX_ATTEMPTS {
        match result {
            Err(Errno::AGAIN | Errno::INTR) => {
                result = openat2(handle, path, flags, Mode::empty(), resolve);
            }
            Ok(_) | Err(_) => break,
        }
    }
    result.map(File::from)
}

fn or_dot(relative: &Path) -> &Path {
    if relative.as_os_str().is_empty() { Path::new(".") } else { relative }
}

/// cap-std reports an escape as a permission error that no system call gave.
fn escape_as_exdev(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
        Errno::XDEV.into()
    } else {
        error
    }
}
