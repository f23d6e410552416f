//! Opens names by openat2(2), which resolves a whole path under a handle.

use crate::Kind;
use crate::access::{Access, Links, NameInfo, READ, or_dot};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Maximum number of attempts to open a path. The kernel returns `EAGAIN` if any rename or mount on the system races with
/// a `..` in a symlink. A worker that starts elsewhere copies a mount namespace, during which every attempt fails.
const MAX_ATTEMPTS: usize = 1000;

/// Flags for a handle of a directory. `O_PATH` needs no read permission and cannot be used to list or change anything.
pub(crate) const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory handle on a kernel that has the call.
#[derive(Debug)]
pub(crate) struct Kernel(File);

impl Kernel {
    /// Gives the handle back if the call is missing or forbidden.
    pub(crate) fn new(handle: File) -> Result<Self, File> {
        match openat2_beneath(&handle, Path::new("."), OFlags::PATH, Links::Never) {
            // Missing before Linux 5.6, or refused by the filter of a container.
            Err(Errno::NOSYS | Errno::PERM) => Err(handle),
            Ok(_) | Err(_) => Ok(Self(handle)),
        }
    }

    pub(crate) fn handle(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(crate) fn open(&self, relative: &Path, links: Links) -> io::Result<File> {
        Ok(openat2_beneath(&self.0, relative, READ, links)?)
    }

    pub(crate) fn stat(&self, relative: &Path, links: Links) -> io::Result<NameInfo> {
        let metadata = openat2_beneath(&self.0, relative, OFlags::PATH, links)?.metadata()?;
        Ok(NameInfo { kind: Kind::from_mode(metadata.mode()), len: metadata.len() })
    }
}

impl Access {
    /// Opens `relative` for reading, if the kernel need not read any name, and without symlinks and mounts on the way.
    pub(crate) fn open_cached(&self, relative: &Path) -> Option<File> {
        let Self::Kernel(Kernel(handle)) = self else { return None };
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_XDEV
            | ResolveFlags::CACHED;
        openat2(handle, or_dot(relative), READ, Mode::empty(), resolve).ok().map(File::from)
    }
}

fn openat2_beneath(
    handle: &File,
    relative: &Path,
    flags: OFlags,
    links: Links,
) -> rustix::io::Result<File> {
    // `RESOLVE_BENEATH` refuses magic links too, for now. openat2(2) advises programs to set the flag themselves.
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
                std::thread::yield_now();
                result = openat2(handle, path, flags, Mode::empty(), resolve);
            }
            Ok(_) | Err(_) => break,
        }
    }
    result.map(File::from)
}
