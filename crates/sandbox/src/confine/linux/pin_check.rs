//! Checks that pins are still mounted. A process outside of the worker's namespace that renames or deletes a pinned
//! name also removes the mount on it. The user's own git does so when it rewrites its settings. Called before each
//! call.

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Returns the first of `names` that is no longer a mount point. Takes a few microseconds per name and blocks on the
/// disk.
#[must_use]
pub fn first_unpinned_blocking(names: &[PathBuf]) -> Option<&Path> {
    // A kernel that does not report mount points cannot be checked, so the pin counts as mounted.
    let is_pinned = |name: &&Path| match is_mount_point(CWD, name) {
        Ok(is_mounted) => is_mounted.unwrap_or(true),
        Err(_) => false,
    };
    names.iter().map(PathBuf::as_path).find(|name| !is_pinned(name))
}

/// Returns whether a name in a directory is a mount point, without following a link. `None` if the kernel does not report
/// it (before 5.8).
///
/// # Errors
/// Those of statx(2).
pub fn is_mount_point(at: impl AsFd, name: &Path) -> rustix::io::Result<Option<bool>> {
    let stat = statx(at, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE)?;
    let is_known = stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
    Ok(is_known.then(|| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)))
}
