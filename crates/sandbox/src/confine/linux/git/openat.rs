//! Inspects and reads files under an open directory, never through a link. Called by the modules next to it and by
//! the audit.

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2, statat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Maximum size of a file in bytes. Git's own files are smaller. Longer content is cut off.
pub(crate) const MAX_FILE: u64 = 256 * 1024;

/// Refuses links, magic links, and paths that leave the directory.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// Flags of a handle without read access. It supports fstat and reopening.
const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Kind of the node at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// The name does not exist.
    Missing,
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A link or a special file. It cannot be a mount point, and can be replaced.
    Other,
}

/// Opens the directory at an absolute path with `O_PATH`, without following links. A link on the path was created
/// after the path was resolved, so it is an attack.
///
/// # Errors
/// The path is missing, is not a directory, or contains a link.
pub fn hold_directory_blocking(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);
    Ok(openat2(CWD, path, flags, Mode::empty(), resolve)?)
}

/// Like [`hold_directory_blocking`], for a directory under `base`.
pub(crate) fn hold(base: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(base, or_dot(path), flags, Mode::empty(), RESOLVE)
}

/// Returns true if the effective user owns an open file or directory.
pub(crate) fn is_own(file: impl AsFd) -> bool {
    fstat(file).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw())
}

/// Opens a directory under `base` for listing.
pub(crate) fn open_directory(base: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat2(base, or_dot(path), flags, Mode::empty(), RESOLVE)
}

/// Returns the kind of `name` in an open directory.
pub(crate) fn node(directory: impl AsFd, name: &OsStr) -> Result<Node, Errno> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Node::Directory,
            FileType::RegularFile => Node::File,
            _ => Node::Other,
        }),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(Node::Missing),
        Err(errno) => Err(errno),
    }
}

/// Returns the kind of `path` under `base`, or [`Node::Other`] if the path contains a link.
///
/// # Errors
/// The system call fails for another reason than a missing name.
pub fn node_at(base: impl AsFd, path: &Path) -> Result<Node, Errno> {
    match openat2(base, or_dot(path), HANDLE | OFlags::NOFOLLOW, Mode::empty(), RESOLVE) {
        Ok(found) => Ok(match FileType::from_raw_mode(fstat(&found)?.st_mode) {
            FileType::Directory => Node::Directory,
            FileType::RegularFile => Node::File,
            _ => Node::Other,
        }),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(Node::Missing),
        Err(Errno::LOOP | Errno::XDEV) => Ok(Node::Other),
        Err(errno) => Err(errno),
    }
}

/// Reads a small regular file under `base` as text. Replaces invalid UTF-8.
pub(crate) fn read(base: impl AsFd, path: &Path) -> io::Result<String> {
    let handle = openat2(base, path, HANDLE | OFlags::NOFOLLOW, Mode::empty(), RESOLVE)?;
    let bytes = read_regular(&handle, MAX_FILE)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads at most `most` bytes of a regular file of the user. Follows links.
pub(crate) fn read_own(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let handle = openat2(CWD, path, HANDLE, Mode::empty(), ResolveFlags::NO_MAGICLINKS)?;
    read_regular(&handle, most)
}

/// Reads a regular file through its handle. Opening a FIFO by name can block forever and wakes its writer, and
/// opening a device has side effects.
fn read_regular(handle: &OwnedFd, most: u64) -> io::Result<Vec<u8>> {
    if FileType::from_raw_mode(fstat(handle)?.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL.into());
    }
    // O_NONBLOCK: another program's lease on the file would delay the open.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = open(format!("/proc/self/fd/{}", handle.as_raw_fd()), flags, Mode::empty())?;
    let mut bytes = Vec::new();
    File::from(file).take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Removes `.` and `..` from `path` without reading the disk. `None` if it leaves the directory in which it starts.
pub(crate) fn normalise(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::RootDir => plain.push("/"),
            Component::CurDir => {}
            Component::ParentDir => {
                if !plain.pop() {
                    return None;
                }
            }
            Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

fn or_dot(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}
