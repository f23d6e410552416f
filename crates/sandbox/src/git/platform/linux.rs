//! Opening of files by `openat2`: the kernel refuses links and paths that leave the directory.

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Refuses links, magic links, and paths that leave the directory.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// Flags of a handle without read access. It supports fstat and reopening.
const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Flags of a handle of a directory.
const DIRECTORY: OFlags = HANDLE.union(OFlags::DIRECTORY);

pub(in crate::git) fn open_beneath(
    base: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    openat2(base, path, flags | OFlags::CLOEXEC, mode, RESOLVE)
}

pub(in crate::git) fn hold(base: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    openat2(base, path, DIRECTORY, Mode::empty(), RESOLVE)
}

pub(in crate::git) fn hold_at(path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);
    openat2(CWD, path, DIRECTORY, Mode::empty(), resolve)
}

pub(in crate::git) fn hold_behind_links(
    base: BorrowedFd<'_>,
    _base_path: &Path,
    path: &Path,
) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(base, path, DIRECTORY, Mode::empty(), resolve)
}

pub(in crate::git) fn stat(base: BorrowedFd<'_>, path: &Path) -> Result<Stat, Errno> {
    fstat(openat2(base, path, HANDLE | OFlags::NOFOLLOW, Mode::empty(), RESOLVE)?)
}

pub(in crate::git) fn open_regular(base: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    reopen(&openat2(base, path, HANDLE | OFlags::NOFOLLOW, Mode::empty(), RESOLVE)?)
}

pub(in crate::git) fn open_regular_at(path: &Path) -> io::Result<File> {
    reopen(&openat2(CWD, path, HANDLE, Mode::empty(), ResolveFlags::NO_MAGICLINKS)?)
}

/// Opens a regular file through its handle. Opening a FIFO by name can block forever and wakes its writer, and
/// opening a device has side effects.
fn reopen(handle: &OwnedFd) -> io::Result<File> {
    if FileType::from_raw_mode(fstat(handle)?.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL.into());
    }

    // O_NONBLOCK: another program's lease on the file would delay the open.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(open(format!("/proc/self/fd/{}", handle.as_raw_fd()), flags, Mode::empty())?.into())
}
