//! A directory tree that other programs may change at any time. Every name is opened below the handle of its directory
//! and without following links, so no path leads out of the tree.

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, openat, readlinkat, renameat, statat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Flags of a file. A pipe in its place must not block.
const FILE: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Mode of new files and directories, minus the umask.
const NEW_FILE: Mode = Mode::from_raw_mode(0o666);
const NEW_DIRECTORY: Mode = Mode::from_raw_mode(0o777);

/// An open directory tree.
#[derive(Debug)]
pub(crate) struct Tree {
    top: OwnedFd,
}

/// The side whose changes are taken, and the side that they are written to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sides<'a> {
    pub(crate) direction: Direction,
    pub(crate) source: &'a Tree,
    pub(crate) target: &'a Tree,
}

impl<'a> Sides<'a> {
    pub(crate) fn new(direction: Direction, base: &'a Tree, copy: &'a Tree) -> Self {
        let (source, target) = match direction {
            Direction::Apply => (copy, base),
            Direction::Refresh => (base, copy),
        };
        Self { direction, source, target }
    }
}

/// The side whose changes are taken, and the side that gets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Those of the session, to the workspace.
    Apply,
    /// Those of the workspace, to the copy.
    Refresh,
}

/// An entry of a directory.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) name: OsString,
    pub(crate) stat: Stat,
}

impl Listed {
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }
}

/// A directory and a name in it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) directory: OwnedFd,
    pub(crate) name: OsString,
}

impl Tree {
    /// Opens the directory at `path`. Links on the way to it are followed.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { top: openat(CWD, path, DIRECTORY, Mode::empty())? })
    }

    pub(crate) fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    /// Opens the directory at a relative path.
    pub(crate) fn directory(&self, path: &Path) -> io::Result<OwnedFd> {
        let mut directory = self.top.try_clone()?;
        // `O_NOFOLLOW` applies to the last name of a path only, so each name is opened by itself.
        for name in names(path)? {
            directory = openat(&directory, name, DIRECTORY, Mode::empty())?;
        }
        Ok(directory)
    }

    /// Opens the directory at a relative path as a separate tree.
    pub(crate) fn below(&self, path: &Path) -> io::Result<Self> {
        Ok(Self { top: self.directory(path)? })
    }

    /// Opens the directory that contains `path`.
    pub(crate) fn place(&self, path: &Path) -> io::Result<Place> {
        let name = path.file_name().ok_or(Errno::INVAL)?.to_owned();
        let directory = self.directory(path.parent().unwrap_or_else(|| Path::new("")))?;
        Ok(Place { directory, name })
    }

    /// Opens the directory that contains `path`, and creates the missing directories on the way.
    pub(crate) fn place_made(&self, path: &Path) -> io::Result<Place> {
        let name = path.file_name().ok_or(Errno::INVAL)?.to_owned();
        let mut directory = self.top.try_clone()?;
        for part in names(path.parent().unwrap_or_else(|| Path::new("")))? {
            match rustix::fs::mkdirat(&directory, part, NEW_DIRECTORY) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            directory = openat(&directory, part, DIRECTORY, Mode::empty())?;
        }
        Ok(Place { directory, name })
    }

    /// Looks at the node at a relative path. `None` if nothing exists, also because a directory on the way is missing
    /// or is no directory.
    pub(crate) fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        match self.place(path) {
            Ok(place) => place.stat(),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the regular file at a relative path for reading.
    pub(crate) fn file(&self, path: &Path) -> io::Result<File> {
        self.place(path)?.file()
    }

    /// Removes the empty directories above `path`, the nearest first, until one stays or `may_go` keeps it.
    pub(crate) fn remove_empty_above(&self, path: &Path, may_go: impl Fn(&Path) -> bool) {
        for above in path.ancestors().skip(1).filter(|above| above.file_name().is_some()) {
            let Ok(place) = self.place(above) else { return };
            // A directory with files stays, and so do those above it.
            if !may_go(above)
                || unlinkat(&place.directory, &place.name, AtFlags::REMOVEDIR).is_err()
            {
                return;
            }
        }
    }

    /// Returns the number of directories above `path` that do not exist.
    pub(crate) fn n_missing_above(&self, path: &Path) -> io::Result<usize> {
        let mut n = 0;
        for above in path.ancestors().skip(1).filter(|above| above.file_name().is_some()) {
            if self.stat(above)?.is_some() {
                break;
            }
            n += 1;
        }
        Ok(n)
    }
}

impl Place {
    /// `None` if nothing exists.
    pub(crate) fn stat(&self) -> io::Result<Option<Stat>> {
        match statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens the regular file for reading.
    pub(crate) fn file(&self) -> io::Result<File> {
        open_file(&self.directory, &self.name)
    }

    pub(crate) fn link(&self) -> io::Result<PathBuf> {
        read_link(&self.directory, &self.name)
    }

    /// Creates a file that must not exist, with these permission bits.
    pub(crate) fn create(&self, name: &OsStr, mode: Mode) -> io::Result<File> {
        let flags = FILE | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let file = File::from(openat(&self.directory, name, flags, NEW_FILE & mode)?);
        Ok(file)
    }

    pub(crate) fn create_link(&self, name: &OsStr, target: &Path) -> io::Result<()> {
        Ok(symlinkat(target, &self.directory, name)?)
    }

    /// Renames `from` in the same directory to the place. Replaces an existing file or link.
    pub(crate) fn take(&self, from: &OsStr) -> io::Result<()> {
        Ok(renameat(&self.directory, from, &self.directory, &self.name)?)
    }

    /// Removes a file or link of the directory. An absent one counts as removed.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        match unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.directory)?)
    }
}

/// Lists a directory, sorted by name. Fails with `E2BIG` above `max` entries.
pub(crate) fn list(directory: BorrowedFd<'_>, max: usize) -> io::Result<Vec<Listed>> {
    let mut listed = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }

        if max <= listed.len() {
            return Err(Errno::TOOBIG.into());
        }
        match statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => listed.push(Listed { name: OsString::from_vec(name.to_vec()), stat }),
            // It was removed since.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    listed.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(listed)
}

/// Opens a directory in an open directory.
pub(crate) fn open_directory(above: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    Ok(openat(above, name, DIRECTORY, Mode::empty())?)
}

/// Opens the regular file `name` for reading.
pub(crate) fn open_file(directory: impl AsFd, name: &OsStr) -> io::Result<File> {
    let file = File::from(openat(directory, name, FILE | OFlags::RDONLY, Mode::empty())?);
    // After the open, because the name may lead elsewhere between two calls.
    if !file.metadata()?.is_file() {
        return Err(Errno::INVAL.into());
    }
    Ok(file)
}

pub(crate) fn read_link(directory: impl AsFd, name: &OsStr) -> io::Result<PathBuf> {
    let target = readlinkat(directory, name, Vec::new())?;
    Ok(OsString::from_vec(target.into_bytes()).into())
}

/// Whether nothing is at a path, also because a name on the way is no directory.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    // `O_NOFOLLOW` gives `ELOOP` for a link, and with `O_DIRECTORY` `ENOTDIR`.
    matches!(errno, Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

/// Returns the names of a relative path.
fn names(path: &Path) -> io::Result<Vec<&OsStr>> {
    let name = |part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    };
    let names: Option<Vec<&OsStr>> = path.components().map(name).collect();
    Ok(names.ok_or(Errno::INVAL)?)
}
