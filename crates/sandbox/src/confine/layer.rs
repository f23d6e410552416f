//! Package caches: the user's files with a private layer for changes on top. Called by `mounts`.

use super::error::{ConfineError, Step};
use super::mounts::{clone_tree, new_file_system};
use super::sys::{self, MountAttributes};
use super::tree::{Kind, NewRoot};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Shows `from` at `at` with a layer of its own in `store`. Where the kernel refuses that, read-only;
/// nothing if the directory is gone.
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
        Ok(tree) => root.place(&tree, at, Kind::Directory),
        Err(_refused) => {
            let tree = clone_tree(&lower, "").step_on("show a cache", from)?;
            sys::set_attributes(&tree, MountAttributes::READ_ONLY, true)
                .step_on("limit a mount", at)?;
            root.place(&tree, at, Kind::Directory)
        }
    }
}

/// The layers as a detached mount. Directories are named by their descriptors: a name of the user's may
/// have characters that mean something to this file system.
fn layered(store: &NewRoot, lower: &OwnedFd, number: usize) -> Result<OwnedFd, ConfineError> {
    let upper = directory(store, &format!("{number}u"))?;
    let work = directory(store, &format!("{number}w"))?;
    let name = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let options = [
        ("lowerdir", &*name(lower)),
        ("upperdir", &*name(&upper)),
        ("workdir", &*name(&work)),
        // Its own notes are attributes that an ordinary user may write.
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

/// True if the kernel lets this process make layers.
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
