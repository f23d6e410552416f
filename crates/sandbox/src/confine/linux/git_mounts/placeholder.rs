//! Placeholders: files and directories created inside `.git` only so that a read-only mount can cover a missing name.
//! They are removed when no worker needs them. Stage 0 creates them. The monitor removes them after the worker's
//! exit. If a monitor was killed, a separate process removes them.
//!
//! The registry is a directory of the daemon that is invisible to workers. It contains one record per repository,
//! named by device and inode, with the list of its placeholders. A monitor holds a shared lock on the record while
//! its worker needs the placeholders. The kernel releases the lock when the monitor exits for any reason. A cleanup
//! needs the exclusive lock.

use crate::git::openat;
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

/// Maximum size of a record in bytes.
const MAX_RECORD: u64 = 256 * 1024;

/// Maximum number of records that one cleanup reads.
const MAX_RECORDS: usize = 10_000;

/// Maximum number of attempts to open a record that is removed between its opening and its locking.
const MAX_ATTEMPTS: usize = 16;

/// Content of a `commondir` that changes nothing: the repository is its own common directory.
pub(crate) const OWN_COMMONDIR: &[u8] = b".\n";

/// Kind of a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceholderKind {
    Directory,
    EmptyFile,
    /// A file with [`OWN_COMMONDIR`].
    CommonDir,
}

impl PlaceholderKind {
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

/// Records and locks of one worker. Keep it in the monitor while the worker runs. Drop it unused in process 1 and in
/// the worker.
#[derive(Debug)]
pub struct Placeholders {
    registry: OwnedFd,
    held: Vec<(String, File)>,
}

/// Result of a cleanup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CleanupStats {
    /// Number of removed files and directories.
    pub removed: usize,
    /// Number of repositories that a worker still uses.
    pub in_use: usize,
}

impl Placeholders {
    /// Opens the registry. Creates the directory if it is missing.
    ///
    /// # Errors
    /// The directory cannot be created or opened.
    pub fn open_blocking(registry: &Path) -> io::Result<Self> {
        match mkdirat(CWD, registry, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(Self { registry: open_registry(registry)?, held: Vec::new() })
    }

    /// Returns the record of a repository, open and locked. `path` is the repository's path.
    fn record(&mut self, repository: impl AsFd, path: &Path) -> io::Result<&mut File> {
        let stat = fstat(repository)?;
        let name = format!("{:x}-{:x}", stat.st_dev, stat.st_ino);

        let place = match self.held.iter().position(|(held, _)| *held == name) {
            Some(place) => place,
            None => {
                let file = self.lock(&name)?;
                // A new record begins with the path of the repository.
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
            // Waits for a running cleanup. A cleanup is short, and a worker cannot delay it.
            flock(&file, FlockOperation::LockShared)?;
            // A cleanup may have removed the record while this call waited for the lock.
            if fstat(&file)?.st_nlink != 0 {
                return Ok(file.into());
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Adds a repository, so that the placeholders of other workers in it stay until this value is dropped.
    pub(crate) fn join(&mut self, repository: impl AsFd, path: &Path) -> io::Result<()> {
        self.record(repository, path).map(|_held| ())
    }

    /// Creates `name` in `repository`, whose path is `path`. Returns true if this call created it.
    pub(crate) fn make(
        &mut self,
        repository: impl AsFd,
        path: &Path,
        name: &Path,
        shape: PlaceholderKind,
    ) -> io::Result<bool> {
        let (Some(parent), Some(last)) = (name.parent(), name.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };

        let parent = openat::open_directory(&repository, parent)?;
        if openat::node(&parent, last)? != openat::Node::Missing {
            return Ok(false);
        }

        let record = self.record(&repository, path)?;
        // Write the record first: a placeholder without a record would never be removed.
        let mut entry = vec![shape.letter()];
        entry.extend(name.as_os_str().as_bytes());
        append(record, &entry)?;

        match create(&parent, last, shape) {
            Ok(()) => Ok(true),
            // Another program created it since the check.
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Placeholders {
    /// Removes the placeholders of this worker's repositories that no other worker needs.
    pub fn clean_own_blocking(self) {
        let Self { registry, held } = self;
        // This drops the shared locks, which a cleanup would wait for.
        let names: Vec<_> = held.into_iter().map(|(name, _lock)| name).collect();
        for name in names {
            // A later cleanup removes what is left.
            clean_one(&registry, OsStr::new(&name)).ok();
        }
    }
}

fn open_registry(registry: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, registry, flags, Mode::empty())?)
}

fn append(mut record: &File, entry: &[u8]) -> io::Result<()> {
    let line = [entry, b"\0"].concat();
    // One write, because other monitors may append to the record at the same time.
    record.write_all(&line)
}

fn create(parent: &OwnedFd, name: &OsStr, shape: PlaceholderKind) -> Result<(), Errno> {
    if shape == PlaceholderKind::Directory {
        return mkdirat(parent, name, Mode::from_raw_mode(0o755));
    }
    let create_empty = || {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat(parent, name, flags, Mode::from_raw_mode(0o644))
    };
    if shape == PlaceholderKind::EmptyFile {
        return create_empty().map(drop);
    }

    // Write the content before the file gets its name: an empty `commondir` breaks the repository if this process is
    // killed here.
    match create_whole(parent, name, OWN_COMMONDIR) {
        // The file system does not support unnamed files.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
            rustix::io::write(create_empty()?, OWN_COMMONDIR).map(drop)
        }
        done => done,
    }
}

fn create_whole(parent: &OwnedFd, name: &OsStr, content: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = openat(parent, ".", flags, Mode::from_raw_mode(0o644))?;
    rustix::io::write(&file, content)?;
    // By path, because a link by descriptor (`AT_EMPTY_PATH`) needs a capability.
    let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, nameless, parent, name, AtFlags::SYMLINK_FOLLOW)
}

/// Removes the placeholders of workers that have exited, and their records. Keeps files whose content has changed,
/// because another program wrote them.
///
/// # Errors
/// The registry cannot be read. A registry that does not exist is empty.
pub fn clean_blocking(registry: &Path) -> io::Result<CleanupStats> {
    let directory = match open_registry(registry) {
        Ok(directory) => directory,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(CleanupStats::default()),
        Err(error) => return Err(error),
    };

    let mut cleaned = CleanupStats::default();
    for entry in std::fs::read_dir(registry)?.take(MAX_RECORDS) {
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
    // Remove the record while it is locked. A waiting worker then sees that it is gone and creates a new one.
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

    // The path may lead to another directory now.
    let is_same = fstat(&repository)
        .is_ok_and(|stat| *name == *format!("{:x}-{:x}", stat.st_dev, stat.st_ino));
    if !is_same {
        return 0;
    }

    // Reverse order removes the content of a directory before the directory.
    let entries: Vec<_> = entries.collect();
    let removed = entries.into_iter().rev().filter_map(|entry| {
        let (letter, path) = entry.split_first()?;
        let shape = PlaceholderKind::from_letter(*letter)?;
        remove(&repository, Path::new(OsStr::from_bytes(path)), shape).ok()
    });
    removed.count()
}

fn remove(repository: &OwnedFd, path: &Path, shape: PlaceholderKind) -> Result<(), Errno> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL);
    };
    let parent = openat::open_directory(repository, parent)?;
    if shape == PlaceholderKind::Directory {
        // Fails if the directory is no longer empty.
        return unlinkat(&parent, name, AtFlags::REMOVEDIR);
    }

    let text = openat::read(&parent, Path::new(name))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    // The file may be empty because its creator was killed before writing.
    let is_ours =
        text.is_empty() || shape == PlaceholderKind::CommonDir && text.as_bytes() == OWN_COMMONDIR;
    if !is_ours {
        return Err(Errno::NOTEMPTY);
    }
    unlinkat(&parent, name, AtFlags::empty())
}

#[cfg(test)]
mod tests;
