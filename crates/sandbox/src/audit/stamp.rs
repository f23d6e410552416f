//! How it is seen that a name is not what it was: by what the kernel says of it, not by what is in it.
//! Called by `names` and `repository`.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, statat};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// The state of a name. The time of the last change of the inode cannot be set by a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    identity: (u64, u64),
    kind: FileType,
    size: i64,
    changed: (i64, i64),
    modified: (i64, i64),
}

impl Stamp {
    /// The state of `path` beneath `base`; `None` if it is not there, or cannot be reached without links.
    pub(super) fn beneath(base: impl AsFd, path: &Path) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match openat2(&base, path, flags, Mode::empty(), resolve) {
            Ok(found) => fstat(&found).ok().map(|stat| Self::of(&stat)),
            // The last name is a link: what it is itself can be said.
            Err(Errno::LOOP) => {
                let (parent, name) = (path.parent()?, path.file_name()?);
                let parent = crate::confine::git::open_directory(base, parent).ok()?;
                let stat = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
                Some(Self::of(&stat))
            }
            Err(_) => None,
        }
    }

    /// The state of a name in an open directory.
    pub(super) fn at(directory: impl AsFd, name: impl rustix::path::Arg) -> Option<Self> {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(Self::of(&stat))
    }

    /// The state of an open directory; `None` if fstat fails.
    pub(super) fn of_open(directory: impl AsFd) -> Option<Self> {
        fstat(directory).ok().map(|stat| Self::of(&stat))
    }

    /// True if the inode last changed before this time since the epoch.
    pub(super) fn changed_before(self, time: Duration) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let (seconds, nanoseconds) = (u64::try_from(seconds), u32::try_from(nanoseconds));
        seconds.is_ok_and(|s| nanoseconds.is_ok_and(|n| Duration::new(s, n) < time))
    }

    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_cast,
        reason = "the types of these fields differ between architectures"
    )]
    fn of(stat: &Stat) -> Self {
        Self {
            identity: (stat.st_dev as u64, stat.st_ino as u64),
            kind: FileType::from_raw_mode(stat.st_mode),
            size: stat.st_size as i64,
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        }
    }

    /// The same without what changes when something in a directory does.
    pub(super) fn identity(self) -> Self {
        Self { size: 0, changed: (0, 0), modified: (0, 0), ..self }
    }

    pub(super) fn is_directory(self) -> bool {
        self.kind == FileType::Directory
    }

    pub(super) fn size(self) -> u64 {
        u64::try_from(self.size).unwrap_or(0)
    }
}
