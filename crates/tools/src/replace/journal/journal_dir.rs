//! Directories and files of the journal, opened by handles. Commands of the session can write there too. So
//! links are not followed, only regular files are read, and every list is limited.

use rustix::fs::{self as sys, AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// `O_NONBLOCK`: opening a FIFO of that name would block.
const FILE: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

const PRIVATE_DIRECTORY: Mode = Mode::RWXU;
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Maximum number of names read from one directory.
const MAX_NAMES: usize = 1000;

/// Open directory.
#[derive(Debug)]
pub(super) struct JournalDir(OwnedFd);

impl JournalDir {
    /// Opens a directory by its path. The last component is not followed if it is a link.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        Ok(Self(sys::open(path, DIRECTORY, Mode::empty())?))
    }

    /// Opens a directory in this one.
    pub(super) fn folder(&self, name: &str) -> io::Result<Self> {
        Ok(Self(sys::openat(&self.0, name, DIRECTORY, Mode::empty())?))
    }

    /// Creates a directory in this one.
    ///
    /// # Errors
    /// `EEXIST` if the name exists.
    pub(super) fn make_folder(&self, name: &str) -> io::Result<Self> {
        sys::mkdirat(&self.0, name, PRIVATE_DIRECTORY)?;
        self.folder(name)
    }

    /// Creates a file in this directory.
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

    /// Returns the names in this directory, unsorted, at most [`MAX_NAMES`].
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

    /// Syncs the names in this directory to the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        match sys::fsync(&self.0) {
            // Some file systems cannot sync a directory.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}
