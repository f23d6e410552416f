//! Directories and files of the journal, reached by handles. Commands of the session can write there too:
//! no link is followed, nothing that is not a regular file is read, and every list is cut.

use rustix::fs::{self as sys, AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// `O_NONBLOCK`: a FIFO of that name would make us wait.
const FILE: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

const PRIVATE_DIRECTORY: Mode = Mode::RWXU;
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Names that are looked at in one directory.
const MAX_NAMES: usize = 1000;

/// An open directory.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// Opens a directory by its path. The last component is not followed if it is a link.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        Ok(Self(sys::open(path, DIRECTORY, Mode::empty())?))
    }

    /// Opens a directory in this one.
    pub(super) fn folder(&self, name: &str) -> io::Result<Self> {
        Ok(Self(sys::openat(&self.0, name, DIRECTORY, Mode::empty())?))
    }

    /// Makes a directory in this one.
    ///
    /// # Errors
    /// `EEXIST` if there is something of that name.
    pub(super) fn make_folder(&self, name: &str) -> io::Result<Self> {
        sys::mkdirat(&self.0, name, PRIVATE_DIRECTORY)?;
        self.folder(name)
    }

    /// Makes a file in this directory.
    pub(super) fn make_file(&self, name: &str) -> io::Result<File> {
        let flags = FILE | OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        Ok(sys::openat(&self.0, name, flags, PRIVATE_FILE)?.into())
    }

    /// Opens a regular file for reading, and for writing at its end.
    pub(super) fn file(&self, name: &str) -> io::Result<File> {
        let flags = FILE | OFlags::RDWR | OFlags::APPEND;
        let file = File::from(sys::openat(&self.0, name, flags, Mode::empty())?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(Errno::INVAL.into()) }
    }

    /// Names in this directory, in no order, and not all of them if there are very many.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let entries = Dir::read_from(&self.0)?.take(MAX_NAMES).filter_map(Result::ok);
        let names = entries.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
        Ok(names.filter(|name| name != "." && name != "..").collect())
    }

    /// Removes a directory in this one with the files in it.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        if let Ok(folder) = self.folder(name) {
            for file in folder.names()? {
                sys::unlinkat(&folder.0, &file, AtFlags::empty())?;
            }
        }
        Ok(sys::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// Makes names in this directory last.
    pub(super) fn sync(&self) -> io::Result<()> {
        match sys::fsync(&self.0) {
            // Some file systems have nothing to do for a directory.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}
