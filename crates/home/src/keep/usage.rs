//! Measures the disk space of a directory that a session writes. Called by [`crate::Home`] for private copies.
//!
//! Links are never followed, and the number of inspected entries is bounded. The result is a lower bound: entries that
//! cannot be read, that are too deep or that exceed the bound do not count.

use super::handles::{bytes, open_dir, open_state};
use rustix::fs::{AtFlags, Dir, FileType, statat};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

/// Maximum number of entries to inspect.
const MAX_ENTRIES: usize = 2_000_000;

/// Maximum depth. Each level has two open descriptors.
const MAX_DEPTH: usize = 64;

/// Returns the disk space of a directory with everything in it, in bytes. 0 if it does not exist. Blocks on the disk.
#[must_use]
pub fn disk_usage_blocking(path: &Path) -> u64 {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return 0 };
    let Ok(name) = CString::new(name.as_encoded_bytes()) else { return 0 };
    let Ok(above) = open_state(above) else { return 0 };
    let mut usage = Usage { bytes: 0, left: MAX_ENTRIES };
    usage.add(above.as_fd(), &name, 0);
    usage.bytes
}

struct Usage {
    bytes: u64,
    /// Number of entries that may still be inspected.
    left: usize,
}

impl Usage {
    /// Adds the content of the directory `name` at `depth`.
    fn add(&mut self, above: BorrowedFd<'_>, name: &CStr, depth: usize) {
        if MAX_DEPTH <= depth {
            return;
        }
        let Ok(directory) = open_dir(above, name, false) else { return };
        let Ok(entries) = Dir::read_from(&directory) else { return };
        for entry in entries.map_while(Result::ok) {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Some(left) = self.left.checked_sub(1) else { return };
            self.left = left;
            // It may have been removed since the listing.
            let Ok(stat) = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            // A file with several names counts once: all of them are in this directory.
            #[allow(
                clippy::useless_conversion,
                reason = "the type of this field differs by system"
            )]
            let names = if is_directory { 1 } else { u64::from(stat.st_nlink.max(1)) };
            self.bytes = self.bytes.saturating_add(bytes(&stat) / names);
            if is_directory {
                self.add(directory.as_fd(), name, depth + 1);
            }
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
        assert_eq!(disk_usage_blocking(&copy), 0);
        fs::create_dir_all(copy.join("tree/deep")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), vec![b'x'; 1000 * KIB]).unwrap();
        symlink(&outside, copy.join("tree/link")).unwrap();
        fs::write(copy.join("tree/deep/file"), vec![b'x'; 400 * KIB]).unwrap();
        fs::hard_link(copy.join("tree/deep/file"), copy.join("tree/other")).unwrap();
        let kib = disk_usage_blocking(&copy) / 1024;
        assert!((400..500).contains(&kib), "{kib}");
    }

    #[test]
    fn a_file_with_holes_counts_what_it_takes_and_a_deep_tree_ends() {
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("copy");
        fs::create_dir_all(copy.join("d/".repeat(2 * MAX_DEPTH))).unwrap();
        fs::File::create(copy.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        assert!(disk_usage_blocking(&copy) < 1 << 30);
    }
}
