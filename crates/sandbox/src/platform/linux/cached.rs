//! Reads a small file without waiting for a disk: only if the names, the attributes and the content are in the
//! kernel's memory. So the thread that must always answer can read it. Otherwise the caller opens the file as usual,
//! on a thread that may block.
//!
//! The file is under the root like every other one (`access`), without any symlink or mount on the way.

use crate::access::Access;
use crate::version::FileVersion;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, StatVfsMountFlags, fstatfs, fstatvfs, openat2};
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::{File, Metadata};
use std::io::IoSliceMut;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// File systems whose calls wait for nothing but their disk: ext4, XFS, Btrfs and tmpfs (`linux/magic.h`).
const LOCAL: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];

/// The kernel updates the time of the last access at least once in this time (`relatime` in mount(8)).
const ACCESS_TIME: Duration = Duration::from_hours(24);

/// Whether files of a root can be read here, and what a read changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CachedReads {
    /// The file system may wait for something else, or for its disk at each read.
    Never,
    /// A read changes the time of the last access only if it is old.
    RelativeAccessTime,
    /// A read changes nothing.
    NoAccessTime,
}

impl CachedReads {
    /// Returns what the file system of a directory allows.
    pub(crate) fn of(directory: impl AsFd) -> Self {
        let kind = fstatfs(&directory).map(|stat| u64::try_from(stat.f_type).unwrap_or(0));
        if !kind.is_ok_and(|kind| LOCAL.contains(&kind)) {
            return Self::Never;
        }
        match fstatvfs(&directory).map(|stat| stat.f_flag) {
            Ok(flags) if flags.contains(StatVfsMountFlags::NOATIME) => Self::NoAccessTime,
            Ok(flags) if flags.contains(StatVfsMountFlags::RELATIME) => Self::RelativeAccessTime,
            Ok(_) | Err(_) => Self::Never,
        }
    }

    /// Whether a read of this file writes nothing, so that it does not wait for the file system's journal.
    pub(crate) fn allow(self, file: &Metadata) -> bool {
        let is_recent = || {
            let accessed = (file.atime(), file.atime_nsec());
            let modified = (file.mtime(), file.mtime_nsec()).max((file.ctime(), file.ctime_nsec()));
            let until = file.accessed().ok().and_then(|at| at.checked_add(ACCESS_TIME));
            // With `relatime`, a read writes the access time if that is not after the last change, or is a day old.
            modified < accessed && until.is_some_and(|until| SystemTime::now() < until)
        };

        match self {
            Self::Never => false,
            Self::RelativeAccessTime => is_recent(),
            Self::NoAccessTime => true,
        }
    }
}

/// Opens the directory at `path`, if no name on the way has to be read.
pub(crate) fn open_directory(path: &Path) -> Option<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED).ok().map(File::from)
}

/// Reads a regular file of at most `max` bytes.
pub(crate) fn read(
    access: &Access,
    reads: CachedReads,
    relative: &Path,
    max: usize,
) -> Option<(Vec<u8>, FileVersion)> {
    if reads == CachedReads::Never {
        return None;
    }
    let file = access.open_cached(relative)?;
    let metadata = file.metadata().ok()?;
    let len = usize::try_from(metadata.len()).ok().filter(|len| *len <= max)?;
    if !metadata.is_file() || !reads.allow(&metadata) {
        return None;
    }

    // With room to see that the file has grown.
    let mut content = vec![0; len + 1];
    let mut parts = [IoSliceMut::new(&mut content)];

    // `RWF_NOWAIT` fails if a part of the content is not in memory.
    let n = preadv2(&file, &mut parts, 0, ReadWriteFlags::NOWAIT).ok()?;
    content.truncate(n);
    (n == len).then(|| (content, FileVersion::of(&metadata)))
}
