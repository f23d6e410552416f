//! Finds files with several hard links, and decides whether all names are in the workspace.
//!
//! Such a file may be written in place, so that its names stay linked. A file with a name elsewhere, or with a
//! protected name, must not be written in place: the new content would appear under that name too.

use crate::Confinement;
use crate::platform::device;
use quackd_sandbox::Root;
use rustix::fs::{AtFlags, Dir, FileType, statat};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// Maximum number of names that are examined. In a larger workspace, files with several names are treated as
/// having a name elsewhere.
const MAX_LOOKED_AT: usize = 1_000_000;

/// Counts the writable names in the workspace for each of `files` (device and inode). Walks the whole workspace
/// if `files` is not empty.
pub(super) fn names_inside_blocking(
    root: &Root,
    confinement: &Confinement,
    files: &BTreeSet<(u64, u64)>,
) -> BTreeMap<(u64, u64), u64> {
    let mut counts = BTreeMap::new();
    if files.is_empty() {
        return counts;
    }

    let inodes: BTreeSet<u64> = files.iter().map(|(_, inode)| *inode).collect();
    let (mut open, mut n_looked_at) = (vec![PathBuf::new()], 0);

    while let Some(above) = open.pop() {
        // A name that is not counted makes the file look linked from elsewhere, so errors are safe.
        let Ok(directory) = root.open_directory(&above) else { continue };
        let Ok(entries) = Dir::read_from(&directory) else { continue };
        for entry in entries.filter_map(Result::ok) {
            n_looked_at += 1;
            if MAX_LOOKED_AT < n_looked_at {
                return counts;
            }
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let path = above.join(name);
            match entry.file_type() {
                FileType::Directory => open.push(path),
                // The number in the listing costs no system call, so it is compared first.
                FileType::RegularFile | FileType::Unknown if inodes.contains(&entry.ino()) => {
                    let Ok(stat) = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
                        continue;
                    };
                    let file = (device(&stat), stat.st_ino);
                    if files.contains(&file) && confinement.protects(&path).is_none() {
                        *counts.entry(file).or_insert(0) += 1;
                    }
                }
                _ => {}
            }
        }
    }

    counts
}
