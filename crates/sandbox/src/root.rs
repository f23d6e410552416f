//! A root directory: its handle, the spellings of its path, and opening files under it.
//!
//! Owns the directory handle. Called by `crates/tools` from threads that may block.

use crate::access::{Access, Links};
use crate::hidden::HiddenPaths;
use crate::names::{canonicalise_existing, follow_links, normalise};
use crate::platform::cached::{self, CachedReads};
use crate::version::FileVersion;
use crate::{Kind, PathError};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// Maximum length of a path argument in bytes: the kernel's limit (`PATH_MAX`).
const MAX_ARGUMENT_BYTES: usize = 4096;

/// Maximum number of attempts to open a root whose path changes at the same time.
const MAX_OPEN_ATTEMPTS: usize = 4;

/// A directory under which files may be opened.
#[derive(Debug)]
pub struct Root {
    access: Access,
    canonical: PathBuf,
    given: PathBuf,
    other_name: Option<PathBuf>,
    hidden: HiddenPaths,
    // INVARIANT: device and inode of the directory behind `access`. The open handle keeps the inode
    // alive, so that its number cannot be given to another directory.
    identity: (u64, u64),
    cached_reads: CachedReads,
}

/// A regular file under a root, open for reading.
#[derive(Debug)]
pub struct OpenFile {
    /// Open file.
    pub file: File,
    /// Size in bytes when the file was opened.
    pub len: u64,
    /// Normalized path relative to the root. Symlinks in it are not resolved.
    pub relative: PathBuf,
    /// State of the file when it was opened.
    pub version: FileVersion,
}

/// A file that was read from the kernel's memory.
#[derive(Debug)]
pub struct CachedFile {
    /// Whole content.
    pub content: Vec<u8>,
    /// Path relative to the root, without symlinks.
    pub name: PathBuf,
    /// State of the file.
    pub version: FileVersion,
}

/// Node at a path under a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// Path relative to the root with every symlink resolved. Empty for the root itself.
    pub relative: PathBuf,
    /// Kind of the node. Never [`Kind::Symlink`], unless a link was created during the call.
    pub kind: Kind,
    /// Size in bytes.
    pub len: u64,
}

impl Root {
    /// Opens a directory as a root.
    ///
    /// # Errors
    /// The path does not name a directory, may not be entered, or keeps changing.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_with(path, Access::new)
    }

    /// Sets another absolute path by which arguments may name this directory, although it is elsewhere.
    #[must_use]
    pub fn with_other_name(self, other_name: Option<PathBuf>) -> Self {
        Self { other_name, ..self }
    }

    /// Makes absolute paths, and everything in them, count as missing under this root, in every spelling. For a process
    /// that is not confined itself. Links on the way to the paths are resolved now.
    #[must_use]
    pub fn with_hidden(self, hidden: &[PathBuf]) -> Self {
        let real: Vec<_> =
            hidden.iter().filter_map(|path| canonicalise_existing(&normalise(path))).collect();
        let hidden = HiddenPaths::under(&self.canonical, hidden.iter().chain(&real));
        Self { hidden, ..self }
    }

    /// Returns true if a name in a directory, which is relative to the root, is hidden or in a hidden directory.
    #[must_use]
    pub fn hides(&self, directory: &Path, name: &OsStr) -> bool {
        self.hidden.contains_in(directory, name)
    }

    /// Paths that count as missing.
    pub(crate) fn hidden(&self) -> &HiddenPaths {
        &self.hidden
    }

    fn open_with(path: &Path, access: fn(File) -> Access) -> io::Result<Self> {
        for _ in 0..MAX_OPEN_ATTEMPTS {
            let handle = Access::open_directory(path)?;
            let canonical = fs::canonicalize(path)?;
            let identity = identity(&handle.metadata()?);

            // The name may have led to another directory by the second call.
            if identity_at(&canonical)? == identity {
                let given = path.to_path_buf();
                return Ok(Self {
                    cached_reads: CachedReads::of(&handle),
                    access: access(handle),
                    canonical,
                    given,
                    other_name: None,
                    hidden: HiddenPaths::default(),
                    identity,
                });
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Returns the canonical path of the directory at the time it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.canonical
    }

    /// Returns true if the path passed to [`Root::open`] no longer names this directory, because it was removed,
    /// moved or replaced.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        !identity_at(&self.given).is_ok_and(|identity| identity == self.identity)
    }

    /// Like [`Root::open_file`], and reads the file, which has at most `max` bytes. Waits for no disk: returns `None` if
    /// the root may be stale, or if a name or the content has to be read or a symlink followed.
    #[must_use]
    pub fn read_cached(&self, argument: &str, max: usize) -> Option<CachedFile> {
        let named = cached::open_directory(&self.given)?.metadata().ok()?;
        let name = self.locate_by_text(argument).ok()??;

        // No link is followed, so this is the path of the file.
        if self.hidden.contains(&name) {
            return None;
        }

        let is_current = named.nlink() != 0 && identity(&named) == self.identity;
        let read = || cached::read(&self.access, self.cached_reads, &name, max);
        let (content, version) = is_current.then(read)??;
        Some(CachedFile { content, name, version })
    }

    /// Converts an argument to a normalized path relative to the root. Empty for the root itself.
    ///
    /// `..` is resolved by text first. An absolute path may spell the root as given, in its canonical form, or in any
    /// form that canonicalizes to it.
    ///
    /// # Errors
    /// [`PathError::Escapes`] if the spelling is outside the root; [`PathError::Io`] for a NUL byte or more than 4096
    /// bytes. Symlinks are checked when the path is opened.
    pub fn locate(&self, argument: &str) -> Result<PathBuf, PathError> {
        if let Some(relative) = self.locate_by_text(argument)? {
            return Ok(relative);
        }
        canonicalise_existing(&normalise(&self.canonical.join(argument)))
            .and_then(|other_spelling| self.strip(&other_spelling))
            .ok_or(PathError::Escapes)
    }

    /// Like [`Root::locate`], without looking at the file system. `None` if the spelling may be another one of the root.
    fn locate_by_text(&self, argument: &str) -> Result<Option<PathBuf>, PathError> {
        if argument.contains('\0') {
            let text = "path contains a NUL byte";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text).into());
        }
        if MAX_ARGUMENT_BYTES < argument.len() {
            return Err(io::Error::from(Errno::NAMETOOLONG).into());
        }
        Ok(self.strip(&normalise(&self.canonical.join(argument))))
    }

    /// Opens the regular file at a path argument for reading. Follows symlinks that stay under the root.
    ///
    /// Never blocks on a FIFO, socket or device: it is refused without being read. A file system that does not answer
    /// can still block.
    ///
    /// # Errors
    /// Every variant of [`PathError`].
    pub fn open_file(&self, argument: &str) -> Result<OpenFile, PathError> {
        let relative = self.locate(argument)?;
        let file = if self.hidden.is_empty() {
            self.open_beneath(&relative)?
        } else {
            self.open_target_of(&relative)?
        };

        let metadata = file.metadata()?;
        match Kind::from_mode(metadata.mode()) {
            Kind::File => {
                let version = FileVersion::of(&metadata);
                Ok(OpenFile { file, len: metadata.len(), relative, version })
            }
            Kind::Directory => Err(PathError::IsDirectory),
            kind => Err(PathError::NotRegular { kind }),
        }
    }

    fn open_beneath(&self, relative: &Path) -> Result<File, PathError> {
        match self.access.open(relative, Links::Beneath) {
            Ok(file) => Ok(file),
            // An absolute symlink also ends here if it points inside.
            Err(error) if is(&error, Errno::XDEV) => self.open_target_of(relative),
            Err(error) => Err(self.refusal(error, relative)),
        }
    }

    /// Opens the path to which the symlinks of another path lead, without following any. So the opened file is not hidden,
    /// even if another program replaces a link at the same time.
    fn open_target_of(&self, relative: &Path) -> Result<File, PathError> {
        let target = self.resolve(relative)?;
        self.access.open(&target, Links::Never).map_err(|error| self.refusal(error, &target))
    }

    /// Opens a regular file that a walk has found. Follows no symlink.
    ///
    /// # Errors
    /// The errors of open(2), `ENOENT` if it is hidden; `InvalidInput` if it is not a regular file.
    pub fn open_relative(&self, relative: &Path) -> io::Result<File> {
        self.check_shown(relative)?;
        let file = self.access.open(relative, Links::Never)?;
        match Kind::from_mode(file.metadata()?.mode()) {
            Kind::File => Ok(file),
            kind => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                PathError::NotRegular { kind }.to_string(),
            )),
        }
    }

    /// Opens a directory that a walk has found, for reading. Follows no symlink.
    ///
    /// # Errors
    /// The errors of open(2), `ENOENT` if it is hidden; `NotADirectory` if it is not a directory.
    pub fn open_directory(&self, relative: &Path) -> io::Result<File> {
        self.check_shown(relative)?;
        let file = self.access.open(relative, Links::Never)?;
        match Kind::from_mode(file.metadata()?.mode()) {
            Kind::Directory => Ok(file),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// Resolves an argument to a path relative to the root, with every symlink resolved. Empty for the root itself.
    /// The path need not exist.
    ///
    /// # Errors
    /// [`PathError::Escapes`] or [`PathError::Io`]; [`PathError::NotFound`] if it is hidden.
    pub fn real_name(&self, argument: &str) -> Result<PathBuf, PathError> {
        self.resolve(&self.locate(argument)?)
    }

    /// Like [`Root::real_name`], for a path relative to the root that a walk has found. It need not be UTF-8.
    ///
    /// # Errors
    /// Same as [`Root::real_name`].
    pub fn real_name_at(&self, relative: &Path) -> Result<PathBuf, PathError> {
        // A walk finds only plain names, no `..` and no absolute paths.
        if relative.components().any(|part| !matches!(part, Component::Normal(_))) {
            return Err(PathError::Escapes);
        }
        self.resolve(relative)
    }

    /// Returns the path and kind of the node at an argument, without opening it for reading.
    ///
    /// # Errors
    /// [`PathError::Escapes`], [`PathError::NotFound`] or [`PathError::Io`].
    pub fn metadata(&self, argument: &str) -> Result<Metadata, PathError> {
        let relative = self.real_name(argument)?;
        match self.access.stat(&relative, Links::Never) {
            Ok(info) => Ok(Metadata { relative, kind: info.kind, len: info.len }),
            Err(error) => Err(self.refusal(error, &relative)),
        }
    }

    fn strip(&self, absolute: &Path) -> Option<PathBuf> {
        let names = [Some(&self.canonical), Some(&self.given), self.other_name.as_ref()];
        let mut stripped = names.into_iter().flatten().map(|name| absolute.strip_prefix(name));
        stripped.find_map(Result::ok).map(Path::to_path_buf)
    }

    fn resolve(&self, relative: &Path) -> Result<PathBuf, PathError> {
        self.check_shown(relative).map_err(|_missing| PathError::NotFound)?;
        let target = follow_links(&self.canonical, relative)?;
        let target = target.strip_prefix(&self.canonical).map_err(|_| PathError::Escapes)?;
        // A link may lead to a hidden path.
        self.check_shown(target).map_err(|_missing| PathError::NotFound)?;
        Ok(target.to_path_buf())
    }

    /// Refuses a hidden path like a missing one.
    ///
    /// # Errors
    /// `ENOENT`.
    fn check_shown(&self, relative: &Path) -> io::Result<()> {
        if self.hidden.contains(relative) { Err(Errno::NOENT.into()) } else { Ok(()) }
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Converts an error of opening `relative`.
    pub(crate) fn refusal(&self, error: io::Error, relative: &Path) -> PathError {
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR) => PathError::NotFound,
            Some(Errno::XDEV) => PathError::Escapes,
            Some(Errno::ISDIR) => PathError::IsDirectory,
            // A link that was created since the path was resolved, or a loop of links.
            Some(Errno::LOOP) => match self.resolve(relative) {
                Ok(_) => PathError::Escapes,
                Err(reason) => reason,
            },
            // A socket cannot be opened, and neither can a device without a driver (open(2)).
            Some(Errno::NXIO | Errno::OPNOTSUPP | Errno::NODEV) => {
                match self.access.stat(relative, Links::Beneath) {
                    Ok(info) if info.kind != Kind::File => {
                        PathError::NotRegular { kind: info.kind }
                    }
                    Ok(_) | Err(_) => PathError::Io(error),
                }
            }
            _ => PathError::Io(error),
        }
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Returns the identity of the directory at a path. A deleted directory counts as missing, even if a mount still
/// keeps it.
fn identity_at(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::metadata(path)?;
    if metadata.nlink() == 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(identity(&metadata))
}

#[cfg(test)]
mod tests;
