//! Deletes one entry of a directory with everything in it, at any depth. Called by `removal` and `caches`, by
//! [`crate::Home`] for directories of a session, and by `quack uninstall`.
//!
//! Works by handles that follow no links. The walk has no recursion, and it opens at most [`MAX_OPEN`]
//! directories and lists at most [`MAX_LISTED`] names of each at a time. It moves deeper directories to the top of the
//! tree and deletes them there. No path is longer than one name, so no limit on path lengths applies.

use super::handles::open_state;
use super::readable::open_readable;
use crate::ownership::MARK;
use rustix::fs::{AtFlags, Dir, FileType, RenameFlags, renameat_with, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum number of directories that are open at the same time, one for each level.
const MAX_OPEN: usize = 64;

/// Maximum number of names that are read from a directory at once.
const MAX_LISTED: usize = 1024;

/// Time for one tree. A process that keeps writing into the tree cannot hold the thread for longer. The next
/// garbage collection deletes the rest.
const MAX_TIME: Duration = Duration::from_secs(120);

/// Deletes the file or directory `path` recursively, at any depth. A missing path counts as deleted. Makes
/// directories readable first if necessary, because tools leave unreadable ones. Blocks on the disk.
///
/// # Errors
/// The error for the first entry that could not be deleted.
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

/// Deletes the entry `name` of `at`. An entry that does not exist counts as deleted.
///
/// # Errors
/// The first error of an entry that could not be deleted; `TIMEDOUT` after [`MAX_TIME`].
pub(super) fn remove_entry(at: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let Some(top) = unlink_or_open(at, name)? else { return Ok(()) };
    // A process that writes into the tree must not guess the next name.
    let random = RandomState::new().hash_one(name.to_bytes());
    let until = Instant::now() + MAX_TIME;
    Walk { at, levels: vec![top], random, moved: 0, until }.finish()
}

/// A directory whose entries are being deleted.
struct Level {
    dir: OwnedFd,
    name: CString,
    /// Names still to be deleted, last one first.
    names: Vec<CString>,
    /// True if the directory may hold more names than were listed.
    has_more: bool,
    /// True if an entry was deleted or moved away since the last listing. Without that, another listing would
    /// find the same names.
    has_progress: bool,
    failed: Option<Errno>,
}

impl Level {
    fn open(at: BorrowedFd<'_>, name: &CStr) -> Result<Self, Errno> {
        let dir = open_readable(at, name)?;
        let mut level = Self {
            dir,
            name: name.to_owned(),
            names: Vec::new(),
            has_more: true,
            has_progress: true,
            failed: None,
        };
        level.list()?;
        Ok(level)
    }

    /// Lists names if some may be left.
    fn list(&mut self) -> Result<(), Errno> {
        if !(self.has_more && self.has_progress) {
            return Ok(());
        }

        let entries = Dir::read_from(&self.dir)?.filter_map(Result::ok);
        let names = entries.map(|entry| entry.file_name().to_owned());
        let real = names.filter(|name| !matches!(name.to_bytes(), b"." | b".."));
        self.names = real.take(MAX_LISTED).collect();
        self.has_more = self.names.len() == MAX_LISTED;
        self.has_progress = false;

        // The mark identifies the tree as quackd's, so it is deleted last: after a kill, the rest of the tree
        // is still known.
        self.names.sort_by_key(|name| name.as_c_str() != MARK);
        Ok(())
    }

    fn fail(&mut self, error: Errno) {
        self.failed.get_or_insert(error);
    }
}

struct Walk<'a> {
    /// The parent directory of the tree.
    at: BorrowedFd<'a>,
    /// Open directories from the top of the tree downwards.
    levels: Vec<Level>,
    random: u64,
    /// Number of directories that were moved to the top.
    moved: u64,
    until: Instant,
}

impl Walk<'_> {
    fn finish(mut self) -> Result<(), Errno> {
        loop {
            if self.until <= Instant::now() {
                return Err(Errno::TIMEDOUT);
            }

            let Some(level) = self.levels.last_mut() else { return Ok(()) };
            match level.names.pop() {
                Some(name) => self.remove_name(&name),
                None => match level.list() {
                    Ok(()) if !level.names.is_empty() => {}
                    listed => self.leave(listed.err())?,
                },
            }
        }
    }

    /// Deletes an entry of the deepest open directory, or opens it.
    fn remove_name(&mut self, name: &CStr) {
        let depth = self.levels.len();
        let Some(level) = self.levels.last_mut() else { return };

        if name == MARK && level.has_more && level.has_progress {
            // Directories were moved here. The next listing has them and the mark.
            return;
        }

        match unlink_or_open(level.dir.as_fd(), name) {
            Ok(None) => level.has_progress = true,
            Ok(Some(next)) if depth < MAX_OPEN => self.levels.push(next),
            // The opened directory is writable by its owner now, so that it can be moved.
            Ok(Some(_)) => self.move_to_top(name),
            Err(error) => level.fail(error),
        }
    }

    fn move_to_top(&mut self, name: &CStr) {
        self.moved += 1;
        let new = format!(".deep-{:016x}-{}", self.random, self.moved);
        let [top, .., level] = self.levels.as_mut_slice() else { return };
        match renameat_with(&level.dir, name, &top.dir, new, RenameFlags::NOREPLACE) {
            Ok(()) | Err(Errno::NOENT) => {
                (level.has_progress, top.has_progress, top.has_more) = (true, true, true);
            }
            Err(error) => level.fail(error),
        }
    }

    /// Deletes the deepest open directory, which is empty now unless something in it could not be deleted.
    ///
    /// # Errors
    /// The directory is the top of the tree and could not be deleted.
    fn leave(&mut self, unlistable: Option<Errno>) -> Result<(), Errno> {
        let Some(level) = self.levels.pop() else { return Ok(()) };
        let above = self.levels.last_mut();
        let at = above.as_ref().map_or(self.at, |above| above.dir.as_fd());

        let removed = match unlinkat(at, &level.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            // The reason why an entry could not be deleted is more useful.
            Err(error) => Err(level.failed.or(unlistable).unwrap_or(error)),
        };

        match (above, removed) {
            (None, removed) => removed,
            (Some(above), Ok(())) => {
                above.has_progress = true;
                Ok(())
            }
            (Some(above), Err(error)) => {
                above.fail(error);
                Ok(())
            }
        }
    }
}

/// Deletes an entry that is not a directory with entries. Opens and lists such a directory.
fn unlink_or_open(at: BorrowedFd<'_>, name: &CStr) -> Result<Option<Level>, Errno> {
    match unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(None),
        // Errors of unlinkat(2) for a directory: ISDIR on Linux, PERM in POSIX.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error),
    }

    let stat = match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        // Another process deleted it.
        Err(Errno::NOENT) => return Ok(None),
        stat => stat?,
    };

    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(Errno::PERM);
    }

    match Level::open(at, name) {
        Ok(level) => Ok(Some(level)),
        // An empty directory can be deleted without being read.
        Err(error) => match unlinkat(at, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(None),
            Err(_) => Err(error),
        },
    }
}
