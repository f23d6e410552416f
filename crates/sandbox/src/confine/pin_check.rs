//! Checks that pins are still mounted. A process outside of the worker's namespace that renames or deletes a pinned
//! name also removes the mount on it. The user's own git does so when it rewrites its settings. Called before each
//! call.

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use std::path::{Path, PathBuf};

/// Returns the first of `names` that is no longer a mount point. Takes a few microseconds per name and blocks on the
/// disk.
#[must_use]
pub fn first_unpinned_blocking(names: &[PathBuf]) -> Option<&Path> {
    names.iter().map(PathBuf::as_path).find(|name| !is_mount_point(name))
}

fn is_mount_point(name: &Path) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    match statx(CWD, name, flags, StatxFlags::TYPE) {
        // A kernel that does not report mount roots cannot be checked, so the pin counts as mounted.
        Ok(found) if !found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) => true,
        Ok(found) => found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        Err(_) => false,
    }
}
