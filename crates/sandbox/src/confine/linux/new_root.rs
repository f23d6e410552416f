//! The tree that becomes a worker's root: finds and creates mount points in it, always under its own handle and never
//! through a link. Called by `mounts`, `empty_mounts`, `overlay` and `kernel_files`.

use super::detached::clone_tree;
use super::error::{ConfineError, StepContext};
use super::sys;
use rustix::fs::{
    FileType, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat, openat, openat2, symlinkat,
};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, move_mount};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

/// Kind of a mount and of its mount point. Both must be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountTargetKind {
    Directory,
    File,
}

/// A mounted tree and the handle of its root.
#[derive(Debug)]
pub(crate) struct NewRoot {
    top: OwnedFd,
}

const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

impl NewRoot {
    /// Mounts a detached file system at `path` relative to `at`.
    pub(crate) fn attach(top: OwnedFd, at: impl AsFd, path: &str) -> Result<Self, ConfineError> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&top, "", at, path, flags).step("attach the new root")?;
        Ok(Self { top })
    }

    /// Mounts a detached file system in a new directory of `root`.
    pub(crate) fn attach_beneath(
        root: &Self,
        top: OwnedFd,
        name: &str,
    ) -> Result<Self, ConfineError> {
        mkdirat(&root.top, name, Mode::RWXU).step("make a directory for private files")?;
        Self::attach(top, &root.top, name)
    }

    /// Returns the handle of the tree's root.
    pub(crate) fn handle(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    /// Mounts `tree` at `at`. Creates missing parent directories and the mount point.
    pub(crate) fn place(
        &self,
        tree: impl AsFd,
        at: &Path,
        kind: MountTargetKind,
    ) -> Result<(), ConfineError> {
        let target = self.make(at, kind)?;
        self.place_on(tree, &target, at)
    }

    /// Mounts `tree` on the open mount point `target`. `at` is its path in errors.
    pub(crate) fn place_on(
        &self,
        tree: impl AsFd,
        target: impl AsFd,
        at: &Path,
    ) -> Result<(), ConfineError> {
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(tree, "", target, "", flags).step_on("mount", at)
    }

    /// Creates a symbolic link.
    pub(crate) fn link(&self, at: &Path, to: &Path) -> Result<(), ConfineError> {
        let (parent, name) = self.parent_of(at)?;
        symlinkat(to, &parent, name).step_on("make a link", at)
    }

    /// Creates a small file with mode 0444.
    pub(crate) fn file(&self, at: &Path, content: &str) -> Result<(), ConfineError> {
        let (parent, name) = self.parent_of(at)?;
        let write = || write_file(&parent, name, content.as_bytes());
        without_size_limit(write).step_on("make a file", at)?;
        Ok(())
    }

    /// Creates the directory `name` in this tree. Returns it as a separate mount.
    pub(crate) fn make_private(&self, name: &str, mode: u32) -> Result<OwnedFd, ConfineError> {
        let make = || {
            mkdirat(&self.top, name, Mode::RWXU)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let directory = openat(&self.top, name, flags, Mode::empty())?;
            // The umask reduces the mode of mkdir, but not of fchmod.
            fchmod(&directory, Mode::from_raw_mode(mode))?;
            clone_tree(&directory, "")
        };
        make().step("make a private directory")
    }

    /// Opens the node at `at` and returns its kind. Follows links inside this root.
    pub(crate) fn find(
        &self,
        at: &Path,
    ) -> Result<Option<(OwnedFd, MountTargetKind)>, ConfineError> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        // A later kernel may need the second flag to stay in this root: see openat2(2).
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let node = match openat2(&self.top, relative(at), flags, Mode::empty(), resolve) {
            Ok(node) => node,
            Err(errno) if sys::is_missing(errno) => return Ok(None),
            Err(errno) => return Err(errno).step_on("look for", at),
        };

        let mode = fstat(&node).step_on("look at", at)?.st_mode;
        let is_directory = FileType::from_raw_mode(mode) == FileType::Directory;
        Ok(Some((
            node,
            if is_directory { MountTargetKind::Directory } else { MountTargetKind::File },
        )))
    }

    /// Opens the node at `at`. Fails if its path contains a link.
    pub(crate) fn open_exactly(&self, at: &Path) -> Result<OwnedFd, ConfineError> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(&self.top, relative(at), HANDLE, Mode::empty(), resolve).step_on("open", at)
    }

    /// Opens `at`. Creates it and its parent directories if they are missing.
    pub(crate) fn make(&self, at: &Path, kind: MountTargetKind) -> Result<OwnedFd, ConfineError> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match openat2(&self.top, relative(at), HANDLE, Mode::empty(), resolve) {
            Ok(node) => return Ok(node),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno).step_on("open a place for a mount", at),
        }

        let (parent, name) = self.parent_of(at)?;
        match kind {
            MountTargetKind::Directory => make_directory(parent.as_fd(), name),
            MountTargetKind::File => write_file(&parent, name, b"")
                .and_then(|_made| openat(&parent, name, HANDLE, Mode::empty())),
        }
        .step_on("make a place for a mount", at)
    }

    /// Returns the parent directory of `at`, created if it is missing, and the last name.
    fn parent_of<'p>(&self, at: &'p Path) -> Result<(OwnedFd, &'p OsStr), ConfineError> {
        let (Some(parent), Some(name)) = (at.parent(), at.file_name()) else {
            return Err(ConfineError::new("find a place", "the root has no parent"));
        };

        // Most parents exist already.
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = HANDLE | OFlags::DIRECTORY;
        match openat2(&self.top, or_dot(relative(parent)), flags, Mode::empty(), resolve) {
            Ok(directory) => return Ok((directory, name)),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno).step_on("open a place for a mount", at),
        }

        let mut directory =
            openat(&self.top, ".", flags, Mode::empty()).step("open the new root")?;
        for component in parent.components() {
            if let Component::Normal(name) = component {
                directory =
                    make_directory(directory.as_fd(), name).step_on("make a directory", at)?;
            }
        }
        Ok((directory, name))
    }
}

fn relative(at: &Path) -> &Path {
    at.strip_prefix("/").unwrap_or(at)
}

fn or_dot(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// Opens a directory. Creates it if it is missing.
fn make_directory(parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let open = || openat(parent, name, HANDLE | OFlags::DIRECTORY, Mode::empty());
    match open() {
        Err(Errno::NOENT) => {}
        opened => return opened,
    }
    match mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => open(),
        Err(errno) => Err(errno),
    }
}

/// Runs `write` without the soft limit on file sizes. The daemon may have inherited one, and its workers with it.
fn without_size_limit<T>(write: impl FnOnce() -> T) -> T {
    let limit = getrlimit(Resource::Fsize);
    let lifted = setrlimit(Resource::Fsize, Rlimit { current: limit.maximum, ..limit });
    let written = write();
    if lifted.is_ok() {
        // Lowering a soft limit cannot fail.
        setrlimit(Resource::Fsize, limit).ok();
    }
    written
}

fn write_file(parent: impl AsFd, name: &OsStr, content: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = openat(parent, name, flags, Mode::from_raw_mode(0o444))?;
    let mut left = content;
    while !left.is_empty() {
        let written = rustix::io::write(&file, left)?;
        left = left.get(written..).unwrap_or_default();
    }
    Ok(file)
}
