//! Names that a repository lacks are made, inside `.git` only, so that something read-only can be mounted on
//! them, and removed when no worker needs them. Made by stage 0; removed by the monitor at the end of a
//! worker, and by a process of its own where a monitor was killed.
//!
//! The registry is a directory of the daemon's that workers do not see. It has one file per repository,
//! named by device and inode, with what was made there. Who needs it holds a shared lock on that file, which
//! the kernel lets go of when the monitor ends, however it ends. Who cleans needs the lock alone.

use super::beneath;
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, flock, fstat, linkat, mkdirat,
    openat, openat2, unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Largest record, in bytes.
const MAX_RECORD: u64 = 256 * 1024;

/// Most records that one cleaning looks at.
const MAX_RECORDS: usize = 10_000;

/// Times that a record may be removed between its opening and its locking.
const MAX_ATTEMPTS: usize = 16;

/// What `commondir` must say to change nothing: the repository is its own.
pub(crate) const OWN_COMMONDIR: &[u8] = b".\n";

/// What is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Directory,
    EmptyFile,
    /// A file with [`OWN_COMMONDIR`].
    CommonDir,
}

impl Shape {
    fn letter(self) -> u8 {
        match self {
            Self::Directory => b'd',
            Self::EmptyFile => b'f',
            Self::CommonDir => b'c',
        }
    }

    fn from_letter(letter: u8) -> Option<Self> {
        [Self::Directory, Self::EmptyFile, Self::CommonDir]
            .into_iter()
            .find(|s| s.letter() == letter)
    }
}

/// Records and locks of one worker. Keep it in the monitor for the worker's whole life: it must be dropped,
/// unused, in process 1 and the worker.
#[derive(Debug)]
pub struct Placeholders {
    registry: OwnedFd,
    held: Vec<(String, File)>,
}

/// What a cleaning did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cleaned {
    /// Files and directories that were removed.
    pub removed: usize,
    /// Repositories that a worker still needs.
    pub in_use: usize,
}

impl Placeholders {
    /// Opens the registry, making the directory if it is missing.
    ///
    /// # Errors
    /// It cannot be made or opened.
    pub fn open_blocking(registry: &Path) -> io::Result<Self> {
        match mkdirat(CWD, registry, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(Self { registry: open_registry(registry)?, held: Vec::new() })
    }

    /// The record of a repository, open and locked. `path` says where it is.
    fn record(&mut self, repository: impl AsFd, path: &Path) -> io::Result<&mut File> {
        let stat = fstat(repository)?;
        let name = format!("{:x}-{:x}", stat.st_dev, stat.st_ino);
        let place = match self.held.iter().position(|(held, _)| *held == name) {
            Some(place) => place,
            None => {
                let file = self.lock(&name)?;
                if file.metadata()?.len() == 0 {
                    append(&file, path.as_os_str().as_bytes())?;
                }
                self.held.push((name, file));
                self.held.len() - 1
            }
        };
        self.held.get_mut(place).map(|(_, file)| file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn lock(&self, name: &str) -> io::Result<File> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        for _ in 0..MAX_ATTEMPTS {
            let file = openat(&self.registry, name, flags, Mode::RUSR | Mode::WUSR)?;
            // Waits for a cleaning, which takes a moment and cannot be held up by a worker.
            flock(&file, FlockOperation::LockShared)?;
            if fstat(&file)?.st_nlink != 0 {
                return Ok(file.into());
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Takes part in a repository: what others have made there stays while this lives.
    pub(crate) fn join(&mut self, repository: impl AsFd, path: &Path) -> io::Result<()> {
        self.record(repository, path).map(|_held| ())
    }

    /// Makes `name` in `repository`, whose own path is `path`. True if this call made it.
    pub(crate) fn make(
        &mut self,
        repository: impl AsFd,
        path: &Path,
        name: &Path,
        shape: Shape,
    ) -> io::Result<bool> {
        let (Some(parent), Some(last)) = (name.parent(), name.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let parent = beneath::open_directory(&repository, parent)?;
        if beneath::node(&parent, last)? != beneath::Node::Missing {
            return Ok(false);
        }
        let record = self.record(&repository, path)?;
        // The record first: what is made without one would stay for ever.
        let mut entry = vec![shape.letter()];
        entry.extend(name.as_os_str().as_bytes());
        append(record, &entry)?;
        match create(&parent, last, shape) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn open_registry(registry: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, registry, flags, Mode::empty())?)
}

fn append(mut record: &File, entry: &[u8]) -> io::Result<()> {
    let line = [entry, b"\0"].concat();
    record.write_all(&line)
}

fn create(parent: &OwnedFd, name: &OsStr, shape: Shape) -> Result<(), Errno> {
    if shape == Shape::Directory {
        return mkdirat(parent, name, Mode::from_raw_mode(0o755));
    }
    let content: &[u8] = if shape == Shape::CommonDir { OWN_COMMONDIR } else { b"" };
    // Complete before it has its name: an empty `commondir` breaks the repository, should we be killed here.
    match create_whole(parent, name, content) {
        // File systems without nameless files.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = openat(parent, name, flags, Mode::from_raw_mode(0o644))?;
            rustix::io::write(&file, content)?;
            Ok(())
        }
        done => done,
    }
}

fn create_whole(parent: &OwnedFd, name: &OsStr, content: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = openat(parent, ".", flags, Mode::from_raw_mode(0o644))?;
    rustix::io::write(&file, content)?;
    let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, nameless, parent, name, AtFlags::SYMLINK_FOLLOW)
}

/// Removes what was made for workers that have ended, and forgets it. What has got another content meanwhile
/// stays: it is somebody's. Stops at `until`.
///
/// # Errors
/// The registry cannot be read. A registry that does not exist is empty.
pub fn clean_blocking(registry: &Path, until: Option<Instant>) -> io::Result<Cleaned> {
    let directory = match open_registry(registry) {
        Ok(directory) => directory,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Cleaned::default()),
        Err(error) => return Err(error),
    };
    let mut cleaned = Cleaned::default();
    for entry in std::fs::read_dir(registry)?.take(MAX_RECORDS) {
        if until.is_some_and(|until| until <= Instant::now()) {
            break;
        }
        let name = entry?.file_name();
        match clean_one(&directory, &name) {
            Ok(removed) => cleaned.removed += removed,
            Err(Errno::WOULDBLOCK) => cleaned.in_use += 1,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(cleaned)
}

fn clean_one(registry: &OwnedFd, name: &OsStr) -> Result<usize, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let record = openat(registry, name, flags, Mode::empty())?;
    flock(&record, FlockOperation::NonBlockingLockExclusive)?;
    let mut record = File::from(record);
    let mut bytes = Vec::new();
    let read = (&mut record).take(MAX_RECORD).read_to_end(&mut bytes);
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let removed = remove_all(&bytes, name);
    // Still locked: whoever waits for it sees that it is gone and makes a new one.
    unlinkat(registry, name, AtFlags::empty())?;
    Ok(removed)
}

fn remove_all(record: &[u8], name: &OsStr) -> usize {
    let mut entries = record.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
    let Some(path) = entries.next() else { return 0 };
    let path = PathBuf::from(OsStr::from_bytes(path));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS;
    let Ok(repository) = openat2(CWD, &path, flags, Mode::empty(), resolve) else { return 0 };
    let is_same = fstat(&repository)
        .is_ok_and(|stat| *name == *format!("{:x}-{:x}", stat.st_dev, stat.st_ino));
    if !is_same {
        return 0;
    }
    // The other way round: what is in a directory before the directory.
    let entries: Vec<_> = entries.collect();
    let removed = entries.into_iter().rev().filter_map(|entry| {
        let (letter, path) = entry.split_first()?;
        let shape = Shape::from_letter(*letter)?;
        remove(&repository, Path::new(OsStr::from_bytes(path)), shape).ok()
    });
    removed.count()
}

fn remove(repository: &OwnedFd, path: &Path, shape: Shape) -> Result<(), Errno> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL);
    };
    let parent = beneath::open_directory(repository, parent)?;
    if shape == Shape::Directory {
        // Refused if somebody has put anything into it.
        return unlinkat(&parent, name, AtFlags::REMOVEDIR);
    }
    let text = beneath::read(&parent, Path::new(name))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    // Or as much of it as was written before its maker was killed.
    let is_ours = text.is_empty() || shape == Shape::CommonDir && text.as_bytes() == OWN_COMMONDIR;
    if !is_ours {
        return Err(Errno::NOTEMPTY);
    }
    unlinkat(&parent, name, AtFlags::empty())
}

#[cfg(test)]
mod tests;
