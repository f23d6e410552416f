//! Mounts package caches: the user's files with a layer for changes on top. The layer is in the workspace's directory if
//! this worker owns that directory, and otherwise in memory. Stage 0 opens the directory; `mounts` mounts the caches.

use super::detached::{clone_tree, new_file_system};
use super::directory_id::DirectoryId;
use super::error::{ConfineError, StepContext};
use super::new_root::{MountTargetKind, NewRoot};
use super::sys::{self, MountAttributes};
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_NOW,
    chmodat, flock, fstat, futimens, mkdirat, openat, openat2, statat, unlinkat,
};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Maximum length of a file name in bytes.
const MAX_NAME: usize = 255;

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Directory with the package caches of one workspace, locked. The monitor keeps it until its worker has exited: two
/// overlays must not share a layer.
#[derive(Debug)]
pub struct CacheDirectory {
    path: PathBuf,
    lock: OwnedFd,
}

/// Reason why a worker does not keep package caches.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheDirectoryError {
    /// Another worker has the lock.
    #[error("another worker of this workspace keeps them")]
    InUse,
    /// Garbage collection deleted the directory, or a system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl CacheDirectory {
    /// Opens and locks the directory. Does not wait for the lock.
    ///
    /// # Errors
    /// The directory is in use, was deleted, or is on a file system without locks.
    pub fn open_blocking(path: &Path) -> Result<Self, CacheDirectoryError> {
        let open = || openat(CWD, path, OFlags::RDONLY | DIRECTORY, Mode::empty());
        let lock = open().map_err(io::Error::from)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(CacheDirectoryError::InUse),
            locked => locked.map_err(io::Error::from)?,
        }

        // Garbage collection renames the directory while it has the lock.
        let named = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from)?;
        let own = fstat(&lock).map_err(io::Error::from)?;
        if (named.st_dev, named.st_ino) != (own.st_dev, own.st_ino) {
            return Err(io::Error::from(io::ErrorKind::NotFound).into());
        }
        Ok(Self { path: path.to_owned(), lock })
    }

    /// Returns the path and the identity. Process 1 opens the directory again: the kernel mounts only directories that
    /// were opened in the same mount namespace.
    pub(crate) fn place(&self) -> io::Result<(PathBuf, DirectoryId)> {
        Ok((self.path.clone(), DirectoryId::of(&self.lock)?))
    }

    /// Records the end of the use and releases the lock.
    pub fn release_blocking(self) {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        // Without the time, garbage collection deletes these caches earlier.
        futimens(&self.lock, &Timestamps { last_access: now, last_modification: now }).ok();
    }
}

/// Layers of one worker's package caches.
pub(crate) struct Layers<'a> {
    /// Private file system in memory.
    store: &'a NewRoot,
    /// Directory of the workspace, if this worker owns it.
    kept: Option<OwnedFd>,
    /// Overlays with a kept layer, by their directory on the host. They are mounted in `store`, which commands cannot
    /// reach.
    overlays: Vec<(PathBuf, NewRoot)>,
    home: &'a Path,
    /// First reason why changes of a cache are not kept.
    pub(crate) failed: Option<String>,
}

impl<'a> Layers<'a> {
    /// Opens the directory of the workspace. `home` is the user's home.
    pub(crate) fn open(
        store: &'a NewRoot,
        kept: Option<&(PathBuf, DirectoryId)>,
        home: &'a Path,
    ) -> Self {
        let open = |(path, expected): &(PathBuf, DirectoryId)| {
            let kept = openat(CWD, path, OFlags::PATH | DIRECTORY, Mode::empty())?;
            let is_same = DirectoryId::of(&kept)? == *expected;
            is_same.then_some(kept).ok_or_else(|| io::Error::other("it was replaced"))
        };

        let (kept, failed) = match kept.map(open) {
            None => (None, None),
            Some(Ok(kept)) => (Some(kept), None),
            Some(Err(error)) => (None, Some(error.to_string())),
        };
        Self { store, kept, overlays: Vec::new(), home, failed }
    }

    /// Mounts `from` at `at` with a layer, in memory if `is_kept` is false or the file system of the workspace's
    /// directory cannot hold it. Mounts it read-only if the kernel refuses overlays, and does nothing if the directory
    /// no longer exists.
    pub(crate) fn mount(
        &mut self,
        root: &NewRoot,
        from: &Path,
        at: &Path,
        number: usize,
        is_kept: bool,
    ) -> Result<(), ConfineError> {
        let Ok(lower) = open_lower(from) else { return Ok(()) };
        if is_kept && let Some(tree) = self.kept(from) {
            return root.place(&tree, at, MountTargetKind::Directory);
        }

        let tree = match layer_in_memory(self.store, &lower, number) {
            Ok(tree) => tree,
            Err(_refused) => {
                let tree = clone_tree(&lower, "").step_on("show a cache", from)?;
                sys::set_attributes(&tree, MountAttributes::READ_ONLY, true)
                    .step_on("limit a mount", at)?;
                tree
            }
        };
        root.place(&tree, at, MountTargetKind::Directory)
    }

    /// Mounts a kept directory at `at`, where the user has no cache. Without it, the files of the cache are in memory.
    pub(crate) fn mount_own(&mut self, root: &NewRoot, at: &Path) -> Result<(), ConfineError> {
        match self.kept(at) {
            Some(tree) => root.place(&tree, at, MountTargetKind::Directory),
            None => Ok(()),
        }
    }

    /// Returns a cache with a kept layer. `None` if this worker keeps no caches, or if it cannot keep this one.
    fn kept(&mut self, cache: &Path) -> Option<OwnedFd> {
        let kept = self.kept.take()?;
        let tree = self.kept_tree(&kept, cache);
        if let Err(error) = &tree {
            self.failed.get_or_insert_with(|| error.to_string());
        }
        // If the first overlay fails, all others would fail too.
        if tree.is_ok() || !self.overlays.is_empty() {
            self.kept = Some(kept);
        }
        tree.ok()
    }

    /// Returns a cache with a layer in the workspace's directory. One overlay of the home serves all caches in it,
    /// because a mount on a disk costs 0.5 ms. Creates a missing cache in the layer.
    fn kept_tree(&mut self, kept: &OwnedFd, cache: &Path) -> Result<OwnedFd, ConfineError> {
        let parent = cache.parent().unwrap_or(cache);
        let above = if cache.starts_with(self.home) { self.home } else { parent };
        let name = cache.strip_prefix(above).unwrap_or(cache);
        let lower = open_lower(above).step_on("open", above)?;

        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = openat2(&lower, name, flags, Mode::empty(), ResolveFlags::NO_XDEV);
        // An overlay does not contain mounts inside its directories.
        if !matches!(opened, Err(Errno::XDEV)) {
            if let Some((_, overlay)) = self.overlays.iter().find(|(of, _)| of == above) {
                return part_of(overlay, name);
            }
            match kept_layer(kept, &lower, &name_of(above)?) {
                Ok(overlay) => {
                    let place = format!("layers{}", self.overlays.len());
                    let overlay = NewRoot::attach_beneath(self.store, overlay, &place)?;
                    let part = part_of(&overlay, name);
                    self.overlays.push((above.to_owned(), overlay));
                    return part;
                }
                // Before Linux 5.13, a layer must not be inside the directory that it changes.
                Err(error) if error.source.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {}
                Err(error) => return Err(error),
            }
        }

        let lower = open_lower(cache).step_on("open", cache)?;
        // No name of another layer ends in this way.
        kept_layer(kept, &lower, &format!("{}%", name_of(cache)?))
    }
}

/// Mounts the ignored directory `from` of an isolated session at `at`, with a layer in the directory `layers`, or in
/// memory if its file system cannot hold one. Returns a note if something is different. The session may have put another
/// node in the place of the mount point: then the directory is missing.
pub(crate) fn mount_output(
    root: &NewRoot,
    store: &NewRoot,
    layers: Option<&Path>,
    from: &Path,
    at: &Path,
    number: usize,
) -> Option<String> {
    // The user has deleted it since the copy was made.
    let lower = open_lower(from).ok()?;

    let kept = || -> Result<OwnedFd, ConfineError> {
        let layers =
            layers.ok_or_else(|| ConfineError::new("make a layer", "there is no place for it"))?;
        let layers = openat(CWD, layers, OFlags::PATH | DIRECTORY, Mode::empty());
        kept_layer(&layers.step("open the layers")?, &lower, &name_of(from)?)
    };

    let (tree, note) = match kept() {
        Ok(tree) => (Ok(tree), None),
        Err(error) => {
            let note = format!("changes in ignored directories end with the worker: {error}");
            (layer_in_memory(store, &lower, number), Some(note))
        }
    };

    match tree.and_then(|tree| root.place(&tree, at, MountTargetKind::Directory)) {
        Ok(()) => note,
        Err(error) => Some(format!("{} is missing: {error}", at.display())),
    }
}

/// Returns a directory of a mounted tree as a separate mount. Creates it if it is missing.
fn part_of(tree: &NewRoot, name: &Path) -> Result<OwnedFd, ConfineError> {
    let part = tree.make(name, MountTargetKind::Directory)?;
    clone_tree(&part, "").step_on("show a cache", name)
}

fn open_lower(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// Creates an overlay with the layer `name` in the workspace's directory. `volatile` omits the flushes of the layer's
/// whole file system, which the kernel does when a worker ends.
fn kept_layer(kept: &OwnedFd, lower: &OwnedFd, name: &str) -> Result<OwnedFd, ConfineError> {
    let layer = directory(kept, name)?;
    let (upper, work) = (directory(&layer, "upper")?, directory(&layer, "work")?);

    // Every volatile mount leaves this mark, and the kernel refuses a layer that has it.
    for (mark, flags) in [
        ("work/incompat/volatile/dirty", AtFlags::empty()),
        ("work/incompat/volatile", AtFlags::REMOVEDIR),
    ] {
        match unlinkat(&work, mark, flags) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno).step_on("prepare a layer", Path::new(name)),
        }
    }

    let mount = overlay(lower, &upper, &work, &[("volatile", "")])?;

    // The kernel makes these with mode 0, and needs no mode: it acts with the rights of this process. The user could
    // neither delete nor copy the state directory.
    let file = Mode::RUSR | Mode::WUSR;
    for (made, mode) in [
        ("work", Mode::RWXU),
        ("work/incompat", Mode::RWXU),
        ("work/incompat/volatile", Mode::RWXU),
        ("work/incompat/volatile/dirty", file),
    ] {
        match chmodat(&work, made, mode, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno).step_on("open a layer to its user", Path::new(name)),
        }
    }
    Ok(mount)
}

/// Returns the name of a layer in the workspace's directory: the path on the host, with escaped slashes.
fn name_of(at: &Path) -> Result<String, ConfineError> {
    let path = at.to_str().map(|path| path.trim_start_matches('/'));
    let name = path.map(|path| path.replace('%', "%25").replace('/', "%2F"));
    let name = name.filter(|name| name.len() <= MAX_NAME);
    name.ok_or_else(|| ConfineError::new("name a layer", "the path of the cache is too long"))
}

fn layer_in_memory(
    store: &NewRoot,
    lower: &OwnedFd,
    number: usize,
) -> Result<OwnedFd, ConfineError> {
    let upper = directory(store.handle(), &format!("{number}u"))?;
    let work = directory(store.handle(), &format!("{number}w"))?;
    overlay(lower, &upper, &work, &[])
}

/// Creates the overlay as a detached mount. Names the directories by their descriptors: a user's path may contain
/// characters that have a meaning in overlay options.
fn overlay(
    lower: &OwnedFd,
    upper: &OwnedFd,
    work: &OwnedFd,
    more: &[(&str, &str)],
) -> Result<OwnedFd, ConfineError> {
    let name = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let (lower, upper, work) = (name(lower), name(upper), name(work));
    let mut options = vec![
        ("lowerdir", &*lower),
        ("upperdir", &*upper),
        ("workdir", &*work),
        // The overlay keeps its metadata in attributes that an ordinary user may write.
        ("userxattr", ""),
        // With an index, the kernel refuses a layer whose user's directory was replaced.
        ("index", "off"),
        // The layer is the session's: attributes in it must not name other directories.
        ("redirect_dir", "nofollow"),
        ("metacopy", "off"),
    ];

    options.extend(more);
    new_file_system("overlay", &options, MountAttributes::WRITABLE)
}

/// Opens a directory. Creates it if it is missing.
fn directory(above: impl AsFd, name: &str) -> Result<OwnedFd, ConfineError> {
    let make = || {
        match mkdirat(&above, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        openat(&above, name, OFlags::PATH | DIRECTORY, Mode::empty())
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
        let lower = directory(store.handle(), "lower")?;
        layer_in_memory(&store, &lower, 0)
    };
    let tried: Result<OwnedFd, ConfineError> = try_it();
    tried.is_ok()
}
