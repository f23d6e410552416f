//! Whether what was mounted upon names is still there. Whoever renames or deletes a name outside of the
//! worker's namespace takes the mount on it away with it: the user's own git does when it rewrites its
//! settings. Called before each call.

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use std::path::{Path, PathBuf};

/// The first of `names` that nothing is mounted upon any more. Some microseconds for each; blocks on the disk.
#[must_use]
pub fn first_unpinned_blocking(names: &[PathBuf]) -> Option<&Path> {
    names.iter().map(PathBuf::as_path).find(|name| !is_mount_point(name))
}

fn is_mount_point(name: &Path) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    match statx(CWD, name, flags, StatxFlags::TYPE) {
        // A kernel that does not say is believed.
        Ok(found) if !found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) => true,
        Ok(found) => found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        Err(_) => false,
    }
}
