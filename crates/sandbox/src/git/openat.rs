//! Inspects and reads files under an open directory, never through a link. Called by the modules next to it and by
//! the audit.

use super::platform;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Maximum size of a file in bytes. Git's own files are smaller. Longer content is cut off.
pub(crate) const MAX_FILE: u64 = 256 * 1024;

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

impl Node {
    fn of(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Self::Directory,
            FileType::RegularFile => Self::File,
            _ => Self::Other,
        }
    }
}

/// Opens the directory at an absolute path, to find files in it, without following links. A link on the path was
/// created after the path was resolved, so it is an attack.
///
/// # Errors
/// The path is missing, is not a directory, or contains a link.
pub fn hold_directory_blocking(path: &Path) -> io::Result<OwnedFd> {
    Ok(platform::hold_at(path)?)
}

/// Like [`hold_directory_blocking`], for a directory under `base`.
pub(crate) fn hold(base: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    platform::hold(base.as_fd(), or_dot(path))
}

/// Like [`hold`], and follows links that do not leave `base`, whose canonical path is `base_path`.
pub(crate) fn hold_behind_links(
    base: impl AsFd,
    base_path: &Path,
    path: &Path,
) -> Result<OwnedFd, Errno> {
    platform::hold_behind_links(base.as_fd(), base_path, or_dot(path))
}

/// Returns true if the effective user owns an open file or directory.
pub(crate) fn is_own(file: impl AsFd) -> bool {
    fstat(file).is_ok_and(|stat| is_of_user(&stat))
}

/// Returns true if this user owns a `.git` and its directory, as git requires (`safe.directory` in git-config(1)).
pub(crate) fn is_own_repository(base: impl AsFd, at: &Path) -> bool {
    let base = base.as_fd();
    let parent = at.parent().unwrap_or(at);
    [at, parent].iter().all(|path| stat(base, path).is_ok_and(|stat| is_of_user(&stat)))
}

fn is_of_user(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

/// Opens a directory under `base` for listing.
pub(crate) fn open_directory(base: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    platform::open_beneath(base.as_fd(), or_dot(path), flags, Mode::empty())
}

/// Creates a file under `base` for writing. The name must not exist.
pub(crate) fn create(base: impl AsFd, path: &Path, mode: Mode) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    platform::open_beneath(base.as_fd(), path, flags, mode)
}

/// Returns the metadata of `path` under `base`. A link on the way is [`Errno::LOOP`]. A link in the last place is returned
/// as a link on Linux, and is [`Errno::LOOP`] on macOS.
pub(crate) fn stat(base: impl AsFd, path: &Path) -> Result<Stat, Errno> {
    platform::stat(base.as_fd(), or_dot(path))
}

/// Returns the kind of `name` in an open directory.
pub(crate) fn node(directory: impl AsFd, name: &OsStr) -> Result<Node, Errno> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Node::of(&stat)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(Node::Missing),
        Err(errno) => Err(errno),
    }
}

/// Returns the kind of `path` under `base`, or [`Node::Other`] if the path is or contains a link.
///
/// # Errors
/// The system call fails for another reason than a missing name.
pub fn node_at(base: impl AsFd, path: &Path) -> Result<Node, Errno> {
    match stat(base, path) {
        Ok(stat) => Ok(Node::of(&stat)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(Node::Missing),
        Err(Errno::LOOP | Errno::XDEV) => Ok(Node::Other),
        Err(errno) => Err(errno),
    }
}

/// Reads a small regular file under `base` as text. Replaces invalid UTF-8.
pub(crate) fn read(base: impl AsFd, path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    platform::open_regular(base.as_fd(), path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads at most `most` bytes of a regular file of the user. Follows links.
pub(crate) fn read_own(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    platform::open_regular_at(path)?.take(most).read_to_end(&mut bytes)?;
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
