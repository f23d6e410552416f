//! Covers hidden nodes of the new tree. Called by `mounts` and `kernel_files`.

use super::detached::clone_tree;
use super::error::{ConfineError, StepContext};
use super::new_root::{MountTargetKind, NewRoot};
use super::sys::{self, MountAttributes};
use std::os::fd::OwnedFd;
use std::path::Path;

/// An empty file and an empty directory that cover hidden nodes.
pub(crate) struct EmptyMounts {
    file: OwnedFd,
    directory: OwnedFd,
}

impl EmptyMounts {
    /// Creates both in the private file system `store`.
    pub(crate) fn make(store: &NewRoot) -> Result<Self, ConfineError> {
        let file = store.make(Path::new("empty.f"), MountTargetKind::File)?;
        let directory = store.make(Path::new("empty.d"), MountTargetKind::Directory)?;
        Ok(Self { file, directory })
    }

    /// Covers the node at `at`. Does nothing if none exists.
    pub(crate) fn cover(&self, root: &NewRoot, at: &Path) -> Result<(), ConfineError> {
        let Some((target, kind)) = root.find(at)? else { return Ok(()) };
        let what = if kind == MountTargetKind::Directory { &self.directory } else { &self.file };
        let copy = clone_tree(what, "").step_on("hide", at)?;
        sys::set_attributes(&copy, MountAttributes::MASK, false).step_on("hide", at)?;
        root.place_on(&copy, &target, at)
    }
}
