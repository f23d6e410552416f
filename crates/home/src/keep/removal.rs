//! Deletes garbage by directory handles. Called by the users of [`super`].

use super::handles::{open_dir, open_state};
use super::trees::remove_entry;
use super::{Item, Kind, agents, caches};
use crate::Home;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Log file that launchd writes.
const SERVICE_LOG: &str = "launchd.log";

/// Maximum size of that log file, in bytes.
const MAX_SERVICE_LOG_BYTES: u64 = 1024 * 1024;

/// Statistics of a deletion, or of a dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number and disk usage in bytes of the items of each kind.
    pub kinds: BTreeMap<Kind, (usize, u64)>,
    /// Number of items that could not be deleted.
    pub failed: usize,
    /// Error of the first of them.
    pub why: Option<String>,
}

impl Tally {
    /// Returns the statistics for deleting all `items`.
    #[must_use]
    pub fn of(items: &[Item]) -> Self {
        let mut tally = Self::default();
        items.iter().for_each(|item| tally.count(item));
        tally
    }

    /// Adds the statistics of another step.
    pub fn add(&mut self, other: Self) {
        for (kind, (items, bytes)) in other.kinds {
            let entry = self.kinds.entry(kind).or_default();
            *entry = (entry.0 + items, entry.1.saturating_add(bytes));
        }
        self.failed += other.failed;
        self.why = self.why.take().or(other.why);
    }

    /// Returns the number of items of all kinds.
    #[must_use]
    pub fn items(&self) -> usize {
        self.kinds.values().map(|(items, _)| items).sum()
    }

    /// Returns the disk usage of all items, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.kinds.values().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    fn count(&mut self, item: &Item) {
        let entry = self.kinds.entry(item.kind).or_default();
        *entry = (entry.0 + 1, entry.1.saturating_add(item.bytes));
    }
}

/// Deletes `items`. A missing item counts as deleted. Blocks on the disk; large trees take longer.
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

/// Truncates the file to which launchd appends the daemon's stderr, if it exceeds 1 MiB. A missing file is
/// fine. Blocks on the disk.
///
/// # Errors
/// The error of the system call.
pub fn trim_service_log_blocking(home: &Home) -> io::Result<()> {
    // Without `NONBLOCK`, opening a FIFO would wait for its reader.
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(CWD, home.dir().join(SERVICE_LOG), flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => File::from(opened?),
    };
    let metadata = file.metadata()?;
    if metadata.is_file() && MAX_SERVICE_LOG_BYTES < metadata.len() {
        file.set_len(0)
    } else {
        Ok(())
    }
}

fn remove(state: &Path, item: &Item) -> io::Result<()> {
    let mut dir = open_state(state)?;
    for (depth, name) in item.dirs.iter().enumerate() {
        // Only a directory at the top can be a link that the user has made.
        dir = match open_dir(&dir, name, depth == 0) {
            Err(Errno::NOENT) => return Ok(()),
            opened => opened?,
        };
    }

    match item.kind {
        Kind::Caches => Ok(caches::remove(&dir, &item.name)?),
        Kind::Agents => Ok(agents::remove(&dir, &item.name)?),
        _ => Ok(remove_entry(dir.as_fd(), &item.name)?),
    }
}
