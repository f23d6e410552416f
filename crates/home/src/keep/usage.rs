//! Measures the disk space of a directory that a session writes. Called by [`crate::Home`] for private copies.
//!
//! Links are never followed, and the number of inspected entries is bounded. Entries that cannot be read, that are too
//! deep or that exceed the bound do not count: the result is then a lower bound, and incomplete.

use super::handles::{bytes, open_dir, open_state};
use rustix::fs::{AtFlags, Dir, FileType, Stat, statat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

/// Maximum number of entries to inspect.
const MAX_ENTRIES: usize = 2_000_000;

/// Maximum depth. Each level has one open descriptor. A new copy is at most 200 deep.
const MAX_DEPTH: usize = 256;

/// Maximum number of files with several names to remember. Further ones count with each name.
const MAX_LINKED: usize = 250_000;

/// Disk space of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUsage {
    /// Size in bytes.
    pub bytes: u64,
    /// False if some entries do not count: they cannot be read, are too deep or too many.
    pub is_complete: bool,
}

/// Returns the disk space of a directory with everything in it but the entries `left_out`, or 0 bytes if the directory
/// does not exist. Blocks on the disk.
#[must_use]
pub fn disk_usage_blocking(path: &Path, left_out: &[&CStr]) -> DiskUsage {
    let nothing = DiskUsage { bytes: 0, is_complete: true };
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return nothing };
    let Ok(name) = CString::new(name.as_encoded_bytes()) else { return nothing };
    let above = match open_state(above) {
        Ok(above) => above,
        Err(error) => {
            return DiskUsage { is_complete: error.kind() == io::ErrorKind::NotFound, ..nothing };
        }
    };

    let mut usage = Usage { sum: nothing, left: MAX_ENTRIES, linked: HashSet::new(), left_out };
    usage.add(above.as_fd(), &name, 0);
    usage.sum
}

struct Usage<'a> {
    sum: DiskUsage,
    /// Number of entries that may still be inspected.
    left: usize,
    /// Device and inode of counted files with several names.
    linked: HashSet<(u64, u64)>,
    /// Entries of the directory itself that do not count.
    left_out: &'a [&'a CStr],
}

impl Usage<'_> {
    /// Adds the content of the directory `name` at `depth`.
    fn add(&mut self, above: BorrowedFd<'_>, name: &CStr, depth: usize) {
        let mut entries = match open_dir(above, name, false).and_then(Dir::new) {
            Ok(entries) if depth < MAX_DEPTH => entries,
            // Another process deleted or replaced it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return,
            Ok(_) | Err(_) => return self.sum.is_complete = false,
        };

        while let Some(entry) = entries.read() {
            let (Ok(entry), Ok(directory)) = (entry, entries.fd()) else {
                return self.sum.is_complete = false;
            };

            let name = entry.file_name();
            let is_left_out = depth == 0 && self.left_out.contains(&name);
            if is_left_out || matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }

            let Some(left) = self.left.checked_sub(1) else {
                return self.sum.is_complete = false;
            };
            self.left = left;
            self.add_entry(directory, name, depth);
        }
    }

    /// Adds an entry of a directory at `depth`, with its content.
    fn add_entry(&mut self, directory: BorrowedFd<'_>, name: &CStr, depth: usize) {
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // It was removed since the listing.
            Err(Errno::NOENT) => return,
            Err(_) => return self.sum.is_complete = false,
        };

        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_directory || !self.is_counted(&stat) {
            self.sum.bytes = self.sum.bytes.saturating_add(bytes(&stat));
        }
        if is_directory {
            self.add(directory, name, depth + 1);
        }
    }

    /// Whether the file has several names and counts by another one.
    fn is_counted(&mut self, stat: &Stat) -> bool {
        if stat.st_nlink <= 1 {
            return false;
        }
        #[allow(
            clippy::unnecessary_cast,
            clippy::cast_sign_loss,
            reason = "the types of these fields differ by system"
        )]
        let identity = (stat.st_dev as u64, stat.st_ino as u64);
        if self.linked.len() < MAX_LINKED {
            !self.linked.insert(identity)
        } else {
            self.linked.contains(&identity)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    const KIB: usize = 1024;

    #[test]
    fn everything_counts_once_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (copy, outside) = (dir.path().join("copy"), dir.path().join("outside"));
        let nothing = DiskUsage { bytes: 0, is_complete: true };
        assert_eq!(disk_usage_blocking(&copy, &[]), nothing);
        fs::create_dir_all(copy.join("tree/deep")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), vec![b'x'; 1000 * KIB]).unwrap();
        symlink(&outside, copy.join("tree/link")).unwrap();
        fs::write(copy.join("tree/deep/file"), vec![b'x'; 400 * KIB]).unwrap();
        fs::hard_link(copy.join("tree/deep/file"), copy.join("tree/other")).unwrap();
        // The other name of this file is not in the directory.
        fs::write(copy.join("tree/shared"), vec![b'x'; 400 * KIB]).unwrap();
        fs::hard_link(copy.join("tree/shared"), dir.path().join("shared")).unwrap();
        let usage = disk_usage_blocking(&copy, &[]);
        let kib = usage.bytes / 1024;
        assert!((800..900).contains(&kib) && usage.is_complete, "{kib}");
    }

    #[test]
    fn only_entries_of_the_directory_itself_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("copy");
        for (name, size) in [("states", 1000 * KIB), ("tree/states", 400 * KIB)] {
            fs::create_dir_all(copy.join(name)).unwrap();
            fs::write(copy.join(name).join("file"), vec![b'x'; size]).unwrap();
        }
        let kib = disk_usage_blocking(&copy, &[c"states"]).bytes / 1024;
        assert!((400..500).contains(&kib), "{kib}");
    }

    #[test]
    fn a_file_with_holes_counts_what_it_takes_and_a_deep_tree_ends() {
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("copy");
        fs::create_dir_all(copy.join("d/".repeat(MAX_DEPTH - 1))).unwrap();
        fs::File::create(copy.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        let usage = disk_usage_blocking(&copy, &[]);
        assert!(usage.bytes < 1 << 30 && usage.is_complete, "{usage:?}");
        fs::create_dir(copy.join("d/".repeat(MAX_DEPTH))).unwrap();
        assert!(!disk_usage_blocking(&copy, &[]).is_complete);
    }
}
