//! Opening of files without `openat2`: each directory on the way is opened from the one above, and a link is refused. An
//! absolute path is opened at once: the user may pass through directories above that the user may not read.
//! Never run on a Mac.

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, open, openat, readlinkat, stat as stat_of,
    statat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

/// Flags of a handle of a directory.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// `O_NOFOLLOW_ANY` of fcntl.h, which rustix does not have: refuses a link anywhere in a path, since macOS 11, the first
/// system that the program starts on.
const NO_LINKS: OFlags = OFlags::from_bits_retain(0x2000_0000);

/// Flags that read a file and wait for nothing.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

pub(in crate::git) fn open_beneath(
    base: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let (above, name) = parent(base, path)?;
    open_name(above.as_ref().map_or(base, AsFd::as_fd), name, flags | OFlags::CLOEXEC, mode)
}

pub(in crate::git) fn hold(base: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    open_beneath(base, path, DIRECTORY, Mode::empty())
}

pub(in crate::git) fn hold_at(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, DIRECTORY | NO_LINKS, Mode::empty())
}

pub(in crate::git) fn hold_behind_links(
    base: BorrowedFd<'_>,
    base_path: &Path,
    path: &Path,
) -> Result<OwnedFd, Errno> {
    let real = fs::canonicalize(base_path.join(path))
        .map_err(|error| error.raw_os_error().map_or(Errno::NOENT, Errno::from_raw_os_error))?;
    // A link that was made since is refused.
    hold(base, real.strip_prefix(base_path).map_err(|_elsewhere| Errno::XDEV)?)
}

pub(in crate::git) fn stat(base: BorrowedFd<'_>, path: &Path) -> Result<Stat, Errno> {
    let (above, name) = parent(base, path)?;
    let above = above.as_ref().map_or(base, AsFd::as_fd);
    let found = statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Symlink => Err(Errno::LOOP),
        _ => Ok(found),
    }
}

pub(in crate::git) fn open_regular(base: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    regular(&stat(base, path)?)?;
    let file = open_beneath(base, path, READ, Mode::empty())?;
    // Another node may have its name now.
    regular(&fstat(&file)?)?;
    Ok(file.into())
}

pub(in crate::git) fn open_regular_at(path: &Path) -> io::Result<File> {
    // Opening a FIFO wakes its writer, and opening a device has side effects.
    regular(&stat_of(path)?)?;
    let file = openat(CWD, path, READ, Mode::empty())?;
    regular(&fstat(&file)?)?;
    Ok(file.into())
}

fn regular(found: &Stat) -> Result<(), Errno> {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Ok(()),
        _ => Err(Errno::INVAL),
    }
}

/// Opens the directory that contains the last name of a path. `None` if that is `base` itself.
fn parent<'a>(base: BorrowedFd<'_>, path: &'a Path) -> Result<(Option<OwnedFd>, &'a OsStr), Errno> {
    let mut names = path.components().map(|component| match component {
        Component::Normal(name) => Ok(name),
        Component::CurDir => Ok(OsStr::new(".")),
        Component::ParentDir | Component::RootDir | Component::Prefix(_) => Err(Errno::XDEV),
    });
    let mut name = names.next().transpose()?.unwrap_or_else(|| OsStr::new("."));
    let mut above: Option<OwnedFd> = None;
    for next in names {
        let directory = above.as_ref().map_or(base, AsFd::as_fd);
        above = Some(open_name(directory, name, DIRECTORY, Mode::empty())?);
        name = next?;
    }
    Ok((above, name))
}

/// Opens a name in a directory, with [`Errno::LOOP`] for a link, as `openat2` does.
fn open_name(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    match openat(directory, name, flags | OFlags::NOFOLLOW, mode) {
        // The system may look at O_DIRECTORY first.
        Err(Errno::NOTDIR) if readlinkat(directory, name, Vec::new()).is_ok() => Err(Errno::LOOP),
        other => other,
    }
}
