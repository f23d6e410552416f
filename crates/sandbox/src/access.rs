//! Opens names under a directory handle, in one of two ways. Called by `root`.
//!
//! On Linux the kernel resolves the whole path under the handle in one call, openat2(2). If that call is missing
//! (before 5.6) or forbidden (some container profiles), and on macOS, the path is walked component by component with
//! handles: by cap-std if links are followed. The walk is as safe and about half as fast. On macOS it has been compiled
//! only, not run.

mod platform;

use crate::Kind;
use cap_std::fs::{Dir, MetadataExt as _, OpenOptions, OpenOptionsExt as _};
use platform::Kernel;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

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
    /// Refused with `ELOOP`, anywhere on the path. So the opened file has exactly this path.
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
            Self::Walk(dir) if links == Links::Never => {
                let (parent, name) = parent_of(dir, relative)?;
                let flags = READ.union(OFlags::NOFOLLOW);
                Ok(File::from(openat(parent, name, flags, Mode::empty())?))
            }
            Self::Walk(dir) => {
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
                    Links::Beneath => dir.metadata(or_dot(relative)).map_err(escape_as_exdev)?,
                    Links::Never => {
                        let (parent, name) = parent_of(dir, relative)?;
                        Dir::from_std_file(File::from(parent)).symlink_metadata(name)?
                    }
                };
                Ok(NameInfo { kind: Kind::from_mode(metadata.mode()), len: metadata.len() })
            }
        }
    }
}

fn or_dot(relative: &Path) -> &Path {
    if relative.as_os_str().is_empty() { Path::new(".") } else { relative }
}

/// Opens the directory that contains `relative`, and follows no link. Returns the last name too, which is `.` for the root.
fn parent_of<'p>(root: &Dir, relative: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
    let mut parent = root.as_fd().try_clone_to_owned()?;

    // Each turn opens the name of the turn before it, so that the last name is left to the caller.
    let mut last = OsStr::new(".");
    for component in relative.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => {
                parent = step(&parent, last)?;
                last = name;
            }
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                // As openat2(2) for a path that leaves the directory.
                return Err(Errno::XDEV.into());
            }
        }
    }
    Ok((parent, last))
}

/// Opens a directory in another one. The system reports a link as `ENOTDIR`.
fn step(directory: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = DIRECTORY.union(OFlags::NOFOLLOW);
    match openat(directory, name, flags, Mode::empty()) {
        Err(Errno::NOTDIR) if is_link(directory, name) => Err(Errno::LOOP.into()),
        opened => Ok(opened?),
    }
}

fn is_link(directory: &OwnedFd, name: &OsStr) -> bool {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink())
}

/// Converts cap-std's error for an escape, which is a permission error without an error number of the system.
fn escape_as_exdev(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none() {
        Errno::XDEV.into()
    } else {
        error
    }
}
