//! Deleting what was found, by handles. Called by [`super`]'s callers, and by [`crate::Home`] for a session's run
//! directory.

use super::{Item, Kind};
use crate::Home;
use crate::claim::MARK;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// What launchd writes.
const SERVICE_LOG: &str = "launchd.log";

/// Bytes that it may have.
const MAX_SERVICE_LOG_BYTES: u64 = 1024 * 1024;

/// How deep a tree may be; one that is deeper stays. Each level holds a descriptor.
const MAX_DEPTH: usize = 1000;

/// What was deleted, or would be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many of each kind, and what they took of the disk, in bytes.
    pub kinds: BTreeMap<Kind, (usize, u64)>,
    /// How many could not be deleted.
    pub failed: usize,
    /// Why the first of those could not.
    pub why: Option<String>,
}

impl Tally {
    /// Of all that was found, as if it were deleted.
    #[must_use]
    pub fn of(items: &[Item]) -> Self {
        let mut tally = Self::default();
        items.iter().for_each(|item| tally.count(item));
        tally
    }

    /// Adds what another step has deleted.
    pub fn add(&mut self, other: Self) {
        for (kind, (items, bytes)) in other.kinds {
            let entry = self.kinds.entry(kind).or_default();
            *entry = (entry.0 + items, entry.1.saturating_add(bytes));
        }
        self.failed += other.failed;
        self.why = self.why.take().or(other.why);
    }

    /// How many of all kinds together.
    #[must_use]
    pub fn items(&self) -> usize {
        self.kinds.values().map(|(items, _)| items).sum()
    }

    /// What all of them took of the disk, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.kinds.values().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    fn count(&mut self, item: &Item) {
        let entry = self.kinds.entry(item.kind).or_default();
        *entry = (entry.0 + 1, entry.1.saturating_add(item.bytes));
    }
}

/// Deletes what was found. What is gone already is no failure. Blocks on the disk, for as long as the trees
/// among them are large.
#[must_use]
pub fn remove_blocking(home: &Home, items: &[Item]) -> Tally {
    let mut tally = Tally::default();
    for item in items {
        match remove(home.dir(), item) {
            Ok(()) => tally.count(item),
            Err(error) => {
                tally.failed += 1;
                tally.why.get_or_insert_with(|| format!("{}: {error}", item.path));
            }
        }
    }
    tally
}

/// Empties the file to which the service manager of macOS appends what the daemon says on stderr, if it has grown
/// too long. Blocks on the disk. One that does not exist is short enough.
///
/// # Errors
/// The system's.
pub fn trim_service_log_blocking(home: &Home) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(CWD, home.dir().join(SERVICE_LOG), flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => File::from(opened?),
    };
    let found = file.metadata()?;
    if found.is_file() && MAX_SERVICE_LOG_BYTES < found.len() { file.set_len(0) } else { Ok(()) }
}

fn remove(state: &Path, item: &Item) -> io::Result<()> {
    let mut dir = open_state(state)?;
    for (depth, name) in item.dirs.iter().enumerate() {
        dir = match open_dir(&dir, name, depth == 0) {
            Err(Errno::NOENT) => return Ok(()),
            opened => opened?,
        };
    }
    Ok(remove_entry(dir.as_fd(), &item.name, MAX_DEPTH)?)
}

/// Deletes what is at `path`, a directory with everything in it included. One that does not exist is deleted.
/// Directories that may not be read are made readable first: tools leave such ones.
///
/// # Errors
/// The system's, for the first entry that stays.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let name = CString::new(name.as_encoded_bytes())?;
    match open_state(above) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        above => Ok(remove_entry(above?.as_fd(), &name, MAX_DEPTH)?),
    }
}

fn remove_entry(at: rustix::fd::BorrowedFd<'_>, name: &CStr, depth: usize) -> Result<(), Errno> {
    match unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // What Linux and POSIX say of a directory.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    let stat = match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        // Somebody else deletes it too.
        Err(Errno::NOENT) => return Ok(()),
        stat => stat?,
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(Errno::PERM);
    }
    let deeper = depth.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
    let mut first = Ok(());
    match open_readable(at, name) {
        Ok(dir) => {
            let mut names = names(&dir)?;
            // The mark that says whose it all is goes last: what a kill leaves is known as ours then.
            names.sort_by_key(|name| name.as_c_str() == MARK);
            for child in names {
                let gone = remove_entry(dir.as_fd(), &child, deeper);
                first = first.and(gone);
            }
        }
        // It may be empty all the same.
        Err(error) => first = Err(error),
    }
    match unlinkat(at, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        // Why it is not empty says more.
        Err(error) => Err(first.err().unwrap_or(error)),
    }
}

/// The names in a directory, all of them: deleting while reading may skip some.
fn names(dir: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let entries = Dir::read_from(dir)?.filter_map(Result::ok);
    let names = entries.map(|entry| entry.file_name().to_owned());
    Ok(names.filter(|name| !matches!(name.to_bytes(), b"." | b"..")).collect())
}

/// Opens a directory whose entries are to be deleted.
fn open_readable(at: rustix::fd::BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let opened = open_dir(at, name, false);
    #[cfg(target_os = "linux")]
    if let Ok(dir) = &opened {
        make_writable(dir);
    } else if matches!(opened, Err(Errno::ACCESS)) {
        // By a handle, so that no link that is put in its place is followed.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        make_writable(&openat(at, name, flags, Mode::empty())?);
        return open_dir(at, name, false);
    }
    opened
}

/// Lets its owner, who we are, delete what is in it. A failure shows when that is tried.
#[cfg(target_os = "linux")]
fn make_writable(dir: &OwnedFd) {
    use std::os::fd::AsRawFd as _;
    let is_writable = rustix::fs::fstat(dir).is_ok_and(|stat| stat.st_mode & 0o700 == 0o700);
    if !is_writable {
        rustix::fs::chmod(format!("/proc/self/fd/{}", dir.as_raw_fd()), Mode::RWXU).ok();
    }
}

/// Opens the state directory, or the one above something of ours. A person may have put a link in its place.
pub(super) fn open_state(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a directory in another one. Only `run` and its like may be links, and `run` is none: it is made so.
pub(super) fn open_dir(at: impl AsFd, name: &CStr, may_be_link: bool) -> Result<OwnedFd, Errno> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if !may_be_link || name == c"run" {
        flags |= OFlags::NOFOLLOW;
    }
    openat(at, name, flags, Mode::empty())
}
