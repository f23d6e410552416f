//! Detached mounts, which have no path yet: copies of existing mounts, and new file systems.

use super::error::{ConfineError, StepContext};
use super::sys::{self, MountAttributes};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, open_tree,
};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Returns a detached copy of the mounts at a directory or file, including mounts inside it.
pub(crate) fn clone_tree(at: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(at, path, flags)
}

/// Creates a detached mount of a file system that needs no device. An option without a value is a flag.
pub(crate) fn new_file_system(
    name: &'static str,
    options: &[(&str, &str)],
    attributes: MountAttributes,
) -> Result<OwnedFd, ConfineError> {
    let step = "make a file system";
    let path = Path::new(name);

    let context = fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC).step_on(step, path)?;
    for (key, value) in options {
        let set = if value.is_empty() {
            fsconfig_set_flag(&context, *key)
        } else {
            fsconfig_set_string(&context, *key, *value)
        };
        set.step_on("configure a file system", path)?;
    }

    fsconfig_create(&context).step_on(step, path)?;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty());
    let mount = mount.step_on("mount a file system", path)?;
    sys::set_attributes(&mount, attributes, false).step_on("limit a mount", path)?;
    Ok(mount)
}
