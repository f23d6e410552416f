//! Detects that the node at a path changed, by its metadata and not its content. Called by the audit and by
//! `visited`.

use super::openat;
use rustix::fs::{AtFlags, FileType, Stat, fstat, statat};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// State of a node. A program cannot set the change time of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InodeStamp {
    identity: (u64, u64),
    kind: FileType,
    size: i64,
    changed: (i64, i64),
    modified: (i64, i64),
}

impl InodeStamp {
    /// Returns the state of `path` under `base`. `None` if it does not exist, or its path to the last name contains a
    /// link.
    pub(crate) fn beneath(base: impl AsFd, path: &Path) -> Option<Self> {
        match openat::stat(&base, path) {
            Ok(stat) => Some(Self::of(&stat)),
            // The last name is a link. Return the state of the link itself.
            Err(Errno::LOOP) => {
                let (parent, name) = (path.parent()?, path.file_name()?);
                let parent = openat::open_directory(base, parent).ok()?;
                let stat = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
                Some(Self::of(&stat))
            }
            Err(_) => None,
        }
    }

    /// Like [`InodeStamp::beneath`]. An absolute path is outside of `base`: a file that the user's settings name, or a
    /// repository that belongs to the workspace.
    pub(crate) fn beneath_or_at(base: impl AsFd, path: &Path) -> Option<Self> {
        match path.strip_prefix("/") {
            Ok(path) => Self::beneath(openat::hold_directory_blocking(Path::new("/")).ok()?, path),
            Err(_) => Self::beneath(base, path),
        }
    }

    /// Returns the state of a name in an open directory.
    pub(crate) fn at(directory: impl AsFd, name: impl rustix::path::Arg) -> Option<Self> {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(Self::of(&stat))
    }

    /// Returns the state of an open directory. `None` if fstat fails.
    pub(crate) fn of_open(directory: impl AsFd) -> Option<Self> {
        fstat(directory).ok().map(|stat| Self::of(&stat))
    }

    /// Returns true if the inode last changed before this time since the epoch.
    pub(crate) fn changed_before(self, time: Duration) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let (seconds, nanoseconds) = (u64::try_from(seconds), u32::try_from(nanoseconds));
        seconds.is_ok_and(|s| nanoseconds.is_ok_and(|n| Duration::new(s, n) < time))
    }

    #[allow(
        clippy::useless_conversion,
        clippy::unnecessary_cast,
        clippy::cast_sign_loss,
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

    /// Clears the fields that change when an entry of a directory changes.
    pub(crate) fn identity(self) -> Self {
        Self { size: 0, changed: (0, 0), modified: (0, 0), ..self }
    }

    pub(crate) fn is_directory(self) -> bool {
        self.kind == FileType::Directory
    }

    pub(crate) fn is_file(self) -> bool {
        self.kind == FileType::RegularFile
    }

    pub(crate) fn size(self) -> u64 {
        u64::try_from(self.size).unwrap_or(0)
    }
}
