//! Mounts package caches: the user's files with a private layer for changes on top. Called by `mounts`.

use super::error::{ConfineError, StepContext};
use super::mounts::{clone_tree, new_file_system};
use super::new_root::{MountTargetKind, NewRoot};
use super::sys::{self, MountAttributes};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Mounts `from` at `at` with a private layer in `store`. Mounts it read-only if the kernel refuses the overlay, and
/// does nothing if the directory no longer exists.
pub(crate) fn mount(
    root: &NewRoot,
    store: &NewRoot,
    from: &Path,
    at: &Path,
    number: usize,
) -> Result<(), ConfineError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let lower = match openat2(CWD, from, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(lower) => lower,
        Err(_gone) => return Ok(()),
    };
    match layered(store, &lower, number) {
        Ok(tree) => root.place(&tree, at, MountTargetKind::Directory),
        Err(_refused) => {
            let tree = clone_tree(&lower, "").step_on("show a cache", from)?;
            sys::set_attributes(&tree, MountAttributes::READ_ONLY, true)
                .step_on("limit a mount", at)?;
            root.place(&tree, at, MountTargetKind::Directory)
        }
    }
}

/// Creates the overlay as a detached mount. Names the directories by their descriptors: a user's path may contain
/// characters that have a meaning in overlay options.
fn layered(store: &NewRoot, lower: &OwnedFd, number: usize) -> Result<OwnedFd, ConfineError> {
    let upper = directory(store, &format!("{number}u"))?;
    let work = directory(store, &format!("{number}w"))?;
    let name = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let options = [
        ("lowerdir", &*name(lower)),
        ("upperdir", &*name(&upper)),
        ("workdir", &*name(&work)),
        // The overlay keeps its metadata in attributes that an ordinary user may write.
        ("userxattr", ""),
    ];
    new_file_system("overlay", &options, MountAttributes::WRITABLE)
}

fn directory(store: &NewRoot, name: &str) -> Result<OwnedFd, ConfineError> {
    let make = || {
        mkdirat(store.handle(), name, Mode::RWXU)?;
        openat(store.handle(), name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
    };
    let made: Result<_, Errno> = make();
    made.step("make a layer")
}

/// Returns true if the kernel lets this process create overlays.
pub(crate) fn works() -> bool {
    let size = [("size", "1m"), ("mode", "0755")];
    let try_it = || {
        let store = new_file_system("tmpfs", &size, MountAttributes::WRITABLE)?;
        let store = NewRoot::attach(store, CWD, "/usr")?;
        let lower = directory(&store, "lower")?;
        layered(&store, &lower, 0)
    };
    let tried: Result<OwnedFd, ConfineError> = try_it();
    tried.is_ok()
}
