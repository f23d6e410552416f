//! Looking at and reading files beneath a held directory, never through a link. Called by the other files
//! of this folder.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, openat2, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Largest file that is read, in bytes. A larger one is not git's.
const MAX_FILE: u64 = 256 * 1024;

/// Links and magic links are refused, and everything that leads out.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// What a name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Node {
    Missing,
    Directory,
    File,
    /// A link or something special: nothing can be mounted on it, and it can be replaced.
    Other,
}

/// Opens a directory beneath `base`, to look around in it.
pub(crate) fn open_directory(base: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat2(base, or_dot(path), flags, Mode::empty(), RESOLVE)
}

/// Says what `name` in an open directory is.
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

/// Says what `path` beneath `base` is; [`Node::Other`] if a link is on the way.
pub(crate) fn node_at(base: impl AsFd, path: &Path) -> Result<Node, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match openat2(base, or_dot(path), flags, Mode::empty(), RESOLVE) {
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

/// Reads a small regular file beneath `base` as text, wrong bytes replaced.
pub(crate) fn read(base: impl AsFd, path: &Path) -> io::Result<String> {
    // Without waiting: a named pipe must not hold a start.
    let flags =
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY;
    let file = openat2(base, path, flags, Mode::empty(), RESOLVE)?;
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL.into());
    }
    let mut bytes = Vec::new();
    File::from(file).take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `path` without `.` and `..`, by text; `None` if it leads out of where it began.
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
