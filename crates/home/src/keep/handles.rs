//! Directories of the state directory by handle, and the age and disk usage of their entries.

use rustix::fs::{CWD, Mode, OFlags, Stat, openat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Opens the state directory or the parent of one of quackd's files. Follows a link, because the user may
/// have placed one.
pub(super) fn open_state(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Opens a subdirectory. Follows a link only if `may_be_link`, and never for `run`, which quackd creates as a
/// directory.
pub(super) fn open_dir(at: impl AsFd, name: &CStr, may_be_link: bool) -> Result<OwnedFd, Errno> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if !may_be_link || name == c"run" {
        flags |= OFlags::NOFOLLOW;
    }
    openat(at, name, flags, Mode::empty())
}

/// Returns the time since the last change of an entry.
pub(super) fn age(stat: &Stat, now: SystemTime) -> Duration {
    // A modification time in the future counts as new.
    now.duration_since(modified(stat)).unwrap_or_default()
}

/// As [`age`], for an entry that commands can write. A modification time in the future counts as of the time at which it
/// was set, which a command cannot choose: otherwise the entry would always be new.
pub(super) fn age_of_foreign(stat: &Stat, now: SystemTime) -> Duration {
    #[expect(clippy::useless_conversion, reason = "the type of this field differs by system")]
    let seconds = u64::try_from(i64::from(stat.st_ctime)).unwrap_or(0);
    let modified = modified(stat);
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let last = if now < modified { changed } else { modified };
    now.duration_since(last).unwrap_or_default()
}

fn modified(stat: &Stat) -> SystemTime {
    #[expect(clippy::useless_conversion, reason = "the type of this field differs by system")]
    let seconds = u64::try_from(i64::from(stat.st_mtime)).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Returns the disk usage in bytes. Less than the file size if the file has holes.
pub(super) fn bytes(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)
}
