//! The tree that becomes a worker's root, while it is put together: finding and making places in it, always
//! beneath its own handle and never through a link. Called by `mounts` and its relatives.

use super::error::{ConfineError, Step};
use super::mounts::clone_tree;
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

/// What a mount is put on: both must be of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    File,
}

/// A mounted tree and the handle of its top.
#[derive(Debug)]
pub(crate) struct NewRoot {
    top: OwnedFd,
}

const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

impl NewRoot {
    /// Mounts a detached file system at `path` beneath `at`.
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

    /// The handle of its top.
    pub(crate) fn handle(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    /// Mounts `tree` at `at`, making what is missing on the way.
    pub(crate) fn place(&self, tree: impl AsFd, at: &Path, kind: Kind) -> Result<(), ConfineError> {
        let target = self.make(at, kind)?;
        self.place_on(tree, &target, at)
    }

    /// Mounts `tree` on an open place, which `at` names in errors.
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

    /// Makes a symbolic link.
    pub(crate) fn link(&self, at: &Path, to: &Path) -> Result<(), ConfineError> {
        let (parent, name) = self.parent_of(at)?;
        symlinkat(to, &parent, name).step_on("make a link", at)
    }

    /// Makes a small file that nobody can write.
    pub(crate) fn file(&self, at: &Path, content: &str) -> Result<(), ConfineError> {
        let (parent, name) = self.parent_of(at)?;
        let write = || write_file(&parent, name, content.as_bytes());
        without_size_limit(write).step_on("make a file", at)?;
        Ok(())
    }

    /// A directory of this tree, made under `name`, as a mount of its own.
    pub(crate) fn make_private(&self, name: &str, mode: u32) -> Result<OwnedFd, ConfineError> {
        let make = || {
            mkdirat(&self.top, name, Mode::RWXU)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let directory = openat(&self.top, name, flags, Mode::empty())?;
            // Unlike mkdir's, this mode is not cut by the umask.
            fchmod(&directory, Mode::from_raw_mode(mode))?;
            clone_tree(&directory, "")
        };
        make().step("make a private directory")
    }

    /// Opens what is at `at` and says what it is; links beneath this root are followed inside it.
    pub(crate) fn find(&self, at: &Path) -> Result<Option<(OwnedFd, Kind)>, ConfineError> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let found = match openat2(&self.top, relative(at), flags, Mode::empty(), resolve) {
            Ok(found) => found,
            Err(errno) if sys::is_missing(errno) => return Ok(None),
            Err(errno) => return Err(errno).step_on("look for", at),
        };
        let mode = fstat(&found).step_on("look at", at)?.st_mode;
        let is_directory = FileType::from_raw_mode(mode) == FileType::Directory;
        Ok(Some((found, if is_directory { Kind::Directory } else { Kind::File })))
    }

    /// Opens what is at `at`, with no link on the way.
    pub(crate) fn open_exactly(&self, at: &Path) -> Result<OwnedFd, ConfineError> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(&self.top, relative(at), HANDLE, Mode::empty(), resolve).step_on("open", at)
    }

    /// Opens `at`, making it and every directory above it that is missing.
    pub(crate) fn make(&self, at: &Path, kind: Kind) -> Result<OwnedFd, ConfineError> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match openat2(&self.top, relative(at), HANDLE, Mode::empty(), resolve) {
            Ok(found) => return Ok(found),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno).step_on("open a place for a mount", at),
        }
        let (parent, name) = self.parent_of(at)?;
        match kind {
            Kind::Directory => make_directory(parent.as_fd(), name),
            Kind::File => write_file(&parent, name, b"")
                .and_then(|_made| openat(&parent, name, HANDLE, Mode::empty())),
        }
        .step_on("make a place for a mount", at)
    }

    /// The directory above `at`, made if it is missing, and the last name.
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

/// Opens a directory, making it if it is missing.
fn make_directory(parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let open = || openat(parent, name, HANDLE | OFlags::DIRECTORY, Mode::empty());
    match open() {
        Err(Errno::NOENT) => {}
        found => return found,
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
