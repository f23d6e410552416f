//! The files and directories that a session has created at the top of git directories. Only these may be changed
//! under names that git does not rewrite: another file can be a temporary one that the user's program renames to
//! `config` next.

use super::super::sys;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, open, statx};
use rustix::io::Errno;
use std::collections::{HashSet, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};

/// Maximum number of remembered files. The oldest are forgotten, and then belong to the user.
const MAX_FILES: usize = 65_536;

/// Identity of a file. Inodes are used again at once, and the time of creation is coarse, so the generation counts:
/// file systems that use inodes again have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    device: (u32, u32),
    inode: u64,
    created: (i64, u32),
    generation: Option<u32>,
}

impl FileId {
    /// Returns the identity and the type and mode of an open file.
    ///
    /// # Errors
    /// `statx` fails.
    pub(crate) fn of(file: &OwnedFd) -> Result<(Self, u32), Errno> {
        let mask = StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::INO | StatxFlags::BTIME;
        let stat = statx(file, "", AtFlags::EMPTY_PATH, mask)?;
        let kind = FileType::from_raw_mode(u32::from(stat.stx_mode));

        // Opening another kind can have effects. Only files and directories are ever the session's.
        let has_generation = matches!(kind, FileType::RegularFile | FileType::Directory);

        // The generation is read by an ioctl, which a handle of `O_PATH` does not accept.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let readable = has_generation.then(|| open(path, flags, Mode::empty()).ok()).flatten();
        let id = Self {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            created: (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec),
            generation: readable.and_then(|file| sys::inode_generation(&file)),
        };
        Ok((id, u32::from(stat.stx_mode)))
    }
}

/// Set of the newest files.
#[derive(Debug, Default)]
pub(crate) struct OwnFiles {
    files: HashSet<FileId>,
    by_age: VecDeque<FileId>,
}

impl OwnFiles {
    pub(crate) fn contains(&self, file: &FileId) -> bool {
        self.files.contains(file)
    }

    /// Forgets a file whose last name may have been removed.
    pub(crate) fn remove(&mut self, file: &FileId) {
        self.files.remove(file);
    }

    pub(crate) fn insert(&mut self, file: FileId) {
        if !self.files.insert(file) {
            return;
        }
        self.by_age.push_back(file);
        if MAX_FILES < self.by_age.len()
            && let Some(oldest) = self.by_age.pop_front()
        {
            self.files.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_files_are_forgotten() {
        let id = |inode| FileId { device: (0, 1), inode, created: (0, 0), generation: None };
        let mut own = OwnFiles::default();
        (0..=MAX_FILES as u64).for_each(|inode| own.insert(id(inode)));
        own.insert(id(1));
        assert!(!own.contains(&id(0)) && own.contains(&id(1)));
        assert_eq!(own.by_age.len(), MAX_FILES);
    }
}
