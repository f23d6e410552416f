//! Deleting what was found, by handles. Called by [`super`]'s callers, and by [`crate::Home`] for a session's run
//! directory.

use super::trees::remove_entry;
use super::{Item, Kind};
use crate::Home;
use rustix::fs::{CWD, Mode, OFlags, openat};
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
    Ok(remove_entry(dir.as_fd(), &item.name)?)
}

/// Deletes the file or the directory `path` with everything in it, at any depth. A path that does not exist counts
/// as deleted. Makes directories readable first if necessary: tools leave unreadable ones. Blocks on the disk.
///
/// # Errors
/// The system's error for the first entry that could not be deleted.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let name = CString::new(name.as_encoded_bytes())?;
    match open_state(above) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        above => Ok(remove_entry(above?.as_fd(), &name)?),
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
