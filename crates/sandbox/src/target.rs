//! Target of a write: finds the file and replaces its content.
//!
//! Owns the handle of the directory, so that the replaced name is under the root even if the path changes in between.
//! Also owns the lock on the existing file.

mod replace;

use crate::access::{self, Access};
use crate::lock::{PATIENCE, lock};
use crate::staged::{Staged, StagedTag};
use crate::turns::{NameAt, Turn};
use crate::version::FileVersion;
use crate::{Kind, PathError, Root, WriteError};
use cap_std::fs::Dir;
use rustix::fs::{self as sys, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Flags for opening one directory of a path. A single name without links cannot lead elsewhere, as with openat2(2).
const DIRECTORY: OFlags = access::DIRECTORY.union(OFlags::NOFOLLOW);

/// Flags for opening an existing file of any kind.
const EXISTING: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Mode of new files and directories, minus the umask.
const NEW_FILE: Mode = Mode::from_raw_mode(0o666);
const NEW_DIRECTORY: Mode = Mode::from_raw_mode(0o777);

/// Mode of a temporary file before it gets the final mode.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Purpose of opening a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Write new content to a file that may be missing. Creates missing parent directories.
    Write,
    /// Read an existing file and replace it.
    Edit,
}

/// Treatment of the other names of a file with several hard links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherNames {
    /// The other names keep the old content. The replaced name becomes a separate file.
    Leave,
    /// The file is written in place, so that all names get the new content. For callers that have checked that all
    /// names are under the root.
    Join,
}

/// A name under a root that is about to get new content.
///
/// While it exists, other workers that open the same file as a target wait.
#[derive(Debug)]
pub struct Target {
    parent: Arc<Dir>,
    name: OsString,
    relative: PathBuf,
    // INVARIANT: the file is locked, if the file system supports locks, and `name` referred to it when it was locked.
    existing: Option<Existing>,
    /// The name without the path of its directory.
    at: NameAt,
    /// Ends after the lock.
    _turn: Turn,
}

/// New content in a temporary file next to the target. Removed when dropped.
#[derive(Debug)]
pub struct StagedContent {
    staged: Staged,
    way: ReplaceMethod,
}

/// Method of replacing the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplaceMethod {
    /// Create a file: the name does not exist.
    New,
    /// Rename the staged file over the old one.
    Over,
    /// Write into the old file, because it cannot be replaced. Before that, the staged file becomes a copy of it.
    Into,
}

impl StagedContent {
    /// Syncs the staged content to the disk. Does nothing for a file that is written in place, which is synced later.
    ///
    /// # Errors
    /// [`WriteError::Io`].
    pub fn sync(&self) -> Result<(), WriteError> {
        match self.way {
            ReplaceMethod::New | ReplaceMethod::Over => {
                self.staged.file.sync_all().map_err(write_failed)
            }
            ReplaceMethod::Into => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Existing {
    file: File,
    version: FileVersion,
    n_links: u64,
}

impl Root {
    /// Opens a path argument as the target of a write. Follows symlinks that stay under the root, also in the last
    /// component, and also to a missing file.
    ///
    /// Blocks for at most 5 s while another worker writes the same file. `give_up` stops the wait.
    ///
    /// # Errors
    /// Every variant of [`WriteError`] except `Changed` and `TooLarge`.
    pub fn open_target(
        &self,
        argument: &str,
        purpose: Purpose,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Target, WriteError> {
        self.open_named(&|| self.real_name(argument), purpose, give_up)
    }

    /// Like [`Root::open_target`], for a path relative to the root that a walk has found. It need not be UTF-8.
    ///
    /// # Errors
    /// Same as [`Root::open_target`].
    pub fn open_target_at(
        &self,
        relative: &Path,
        purpose: Purpose,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Target, WriteError> {
        self.open_named(&|| self.real_name_at(relative), purpose, give_up)
    }

    /// Removes the staged file with `tag` next to `beside`, left by a process that died during a write. Cannot remove
    /// any other file. Returns false if it does not exist.
    ///
    /// # Errors
    /// [`PathError::Escapes`], [`PathError::NotFound`] for the directory, [`PathError::Io`].
    pub fn remove_staged(&self, beside: &Path, tag: StagedTag) -> Result<bool, PathError> {
        let above = beside.parent().unwrap_or_else(|| Path::new(""));
        let parent = directory(self.access(), above, Purpose::Edit)?;
        match sys::unlinkat(parent, tag.file_name(), AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(PathError::Io(errno.into())),
        }
    }

    fn open_named(
        &self,
        real_name: &dyn Fn() -> Result<PathBuf, PathError>,
        purpose: Purpose,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Target, WriteError> {
        let until = Instant::now() + PATIENCE;
        let mut turns: Option<(NameAt, Turn)> = None;
        loop {
            let relative = real_name()?;
            let name = relative.file_name().ok_or(PathError::IsDirectory)?.to_owned();
            let above = relative.parent().unwrap_or_else(|| Path::new(""));
            let parent = Arc::new(Dir::from_std_file(directory(self.access(), above, purpose)?));
            let at = NameAt::of(&*parent, &name).map_err(PathError::Io)?;
            // After an attempt at the same name, the thread keeps its turn.
            let turn = match turns.take().filter(|(known, _)| *known == at) {
                Some((_, turn)) => turn,
                None => Turn::wait(at.clone(), until, give_up)?,
            };
            let mut target = Target { parent, name, relative, existing: None, at, _turn: turn };

            match target.open_existing(purpose) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => match purpose {
                    Purpose::Write => return Ok(target),
                    Purpose::Edit => return Err(PathError::NotFound.into()),
                },
                // A link was created since the path was resolved, so resolve it again.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {}
                Err(error) => return Err(self.refusal(error, &target.relative).into()),
                Ok(existing) => {
                    lock(&existing.file, until, give_up)?;
                    // The previous holder of the lock may have replaced the file. This open handle prevents reuse of
                    // its inode.
                    let now = target.version_at_name()?;
                    if now.is_some_and(|now| now.file() == existing.version.file()) {
                        target.existing = Some(Existing::of(existing.file)?);
                        target.check_writable()?;
                        return Ok(target);
                    }
                }
            }

            if give_up() {
                return Err(WriteError::GivenUp);
            }
            if until <= Instant::now() {
                return Err(WriteError::Locked);
            }
            turns = Some((target.at, target._turn));
        }
    }
}

impl Target {
    /// Returns the path relative to the root, with every symlink resolved.
    #[must_use]
    pub fn relative(&self) -> &Path {
        &self.relative
    }

    /// Returns the state of the existing file. `None` if there is none.
    #[must_use]
    pub fn version(&self) -> Option<FileVersion> {
        self.existing.as_ref().map(|existing| existing.version)
    }

    /// Returns the number of hard links of the existing file. 0 if there is none.
    #[must_use]
    pub fn n_names(&self) -> u64 {
        self.existing.as_ref().map_or(0, |existing| existing.n_links)
    }

    /// Reads the existing file. Empty if there is none.
    ///
    /// # Errors
    /// [`WriteError::TooLarge`] if the file has more than `max` bytes; [`WriteError::Io`].
    pub fn read(&mut self, max: u64) -> Result<Vec<u8>, WriteError> {
        let mut content = Vec::new();
        let Some(existing) = &mut self.existing else { return Ok(content) };
        if max < existing.version.len() {
            return Err(WriteError::TooLarge { len: existing.version.len() });
        }

        let failed = |source| WriteError::Io { call: "read", source };
        existing.file.rewind().map_err(failed)?;
        // With this capacity, one read suffices for most files. Bytes appended since the file was opened are not read. The
        // file counts as changed later.
        let len = existing.version.len();
        content.reserve_exact(usize::try_from(len).unwrap_or(0));
        (&existing.file).take(len).read_to_end(&mut content).map_err(failed)?;
        Ok(content)
    }

    /// First half of [`Target::replace`]: writes the new content to a temporary file next to the target, named by
    /// `tag`. `other_names` selects the treatment of hard links. [`StagedContent::sync`] makes it durable.
    ///
    /// If the process dies before [`Target::put`], the temporary file contains the new content or a part of it, and
    /// the target is unchanged. For a file that is written in place, the temporary file contains the complete old
    /// content.
    ///
    /// # Errors
    /// [`WriteError::Io`], also for a file with several names whose owner cannot be kept.
    pub fn stage(
        &self,
        content: &[u8],
        tag: StagedTag,
        other_names: OtherNames,
    ) -> Result<StagedContent, WriteError> {
        let create = |mode| Staged::create(&self.parent, tag, mode).map_err(open_failed);
        let (staged, way) = match &self.existing {
            None => (create(NEW_FILE)?, ReplaceMethod::New),
            Some(existing)
                if other_names == OtherNames::Join && 1 < existing.n_links
                    || self.is_mount_point() =>
            {
                (create(PRIVATE)?, ReplaceMethod::Into)
            }
            Some(existing) => {
                let staged = create(PRIVATE)?;
                match staged.dress_as(&existing.file) {
                    Ok(()) => (staged, ReplaceMethod::Over),
                    Err(_) if existing.n_links <= 1 => (staged, ReplaceMethod::Into),
                    Err(error) => return Err(rename_failed(error)),
                }
            }
        };

        if way != ReplaceMethod::Into {
            fill(&staged.file, content)?;
        }
        Ok(StagedContent { staged, way })
    }

    /// Second half: replaces the content by `content`, which was staged and synced. The new name is durable after
    /// [`Target::sync_parent`].
    ///
    /// # Errors
    /// Same as [`Target::replace`].
    pub fn put(
        &mut self,
        StagedContent { staged, way }: StagedContent,
        content: &[u8],
        give_up: &dyn Fn() -> bool,
    ) -> Result<FileVersion, WriteError> {
        let file = match way {
            ReplaceMethod::New => {
                if give_up() {
                    return Err(WriteError::GivenUp);
                }
                staged.create_as(&self.name).map_err(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => WriteError::Changed,
                    _ => rename_failed(error),
                })?
            }
            ReplaceMethod::Over => {
                self.check_unchanged(give_up)?;
                staged.replace(&self.name).map_err(rename_failed)?
            }
            ReplaceMethod::Into => self.put_into(staged, content, give_up)?,
        };
        let existing = Existing::of(file)?;
        let version = existing.version;
        self.existing = Some(existing);
        Ok(version)
    }

    /// Writes into the file itself. It must not have more names than when it was opened: a new name could be outside
    /// the root.
    fn put_into(
        &self,
        mut copy: Staged,
        content: &[u8],
        give_up: &dyn Fn() -> bool,
    ) -> Result<File, WriteError> {
        let Some(existing) = &self.existing else { return Err(WriteError::Changed) };

        let mut old = &existing.file;
        old.rewind().map_err(write_failed)?;
        io::copy(&mut old, &mut copy.file).map_err(write_failed)?;
        // Durable before the first byte of the file changes.
        copy.file.sync_all().map_err(write_failed)?;

        let file = sys::openat(&self.parent, &self.name, OFlags::WRONLY | EXISTING, Mode::empty());
        let mut file = match file {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::LOOP) => return Err(WriteError::Changed),
            Err(errno) => return Err(open_failed(errno.into())),
        };

        self.check_unchanged(give_up)?;
        let metadata = file.metadata().map_err(open_failed)?;
        if FileVersion::of(&metadata) != existing.version || existing.n_links < metadata.nlink() {
            return Err(WriteError::Changed);
        }

        let written = overwrite(&mut file, &mut io::Cursor::new(content));
        if let Err(error) = written {
            let restored = copy.file.rewind().and_then(|()| overwrite(&mut file, &mut copy.file));
            if restored.is_err() {
                copy.keep();
            }
            return Err(write_failed(error));
        }
        existing.file.try_clone().map_err(write_failed)
    }

    /// Last check before the name gets its new content.
    fn check_unchanged(&self, give_up: &dyn Fn() -> bool) -> Result<(), WriteError> {
        if give_up() {
            return Err(WriteError::GivenUp);
        }
        if self.version_at_name()? == self.version() { Ok(()) } else { Err(WriteError::Changed) }
    }

    fn open_existing(&self, purpose: Purpose) -> io::Result<Existing> {
        let open = |flags| sys::openat(&self.parent, &self.name, flags | EXISTING, Mode::empty());
        let opened = match open(OFlags::RDONLY) {
            // A file may be writable without being readable.
            Err(Errno::ACCESS) if purpose == Purpose::Write => open(OFlags::WRONLY),
            opened => opened,
        };
        let file = File::from(opened?);
        let metadata = file.metadata()?;
        // With these flags, opening a link fails with `ELOOP`. No other node fails with it.
        match Kind::from_mode(metadata.mode()) {
            Kind::File => Ok(Existing::with(file, &metadata)),
            Kind::Directory => Err(Errno::ISDIR.into()),
            _ => Err(Errno::NXIO.into()),
        }
    }

    /// Fails for a file that this user may not write, although its directory would allow replacing it. Editors do the
    /// same.
    fn check_writable(&self) -> Result<(), WriteError> {
        let writable =
            sys::accessat(&self.parent, &self.name, sys::Access::WRITE_OK, AtFlags::EACCESS);
        writable.map_err(|errno| open_failed(errno.into()))
    }

    fn version_at_name(&self) -> Result<Option<FileVersion>, WriteError> {
        match self.parent.symlink_metadata(&self.name) {
            Ok(metadata) => Ok(Some(FileVersion::of_name(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(open_failed(error)),
        }
    }

    /// Syncs the directory, so that the new name is durable. Skips an unreadable directory.
    ///
    /// # Errors
    /// [`WriteError::Io`]. The name already has its new content.
    pub fn sync_parent(&self) -> Result<(), WriteError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(directory) = sys::openat(&self.parent, ".", flags, Mode::empty()) else {
            return Ok(());
        };
        match sys::fsync(directory) {
            // Some file systems do not sync directories.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(write_failed(errno.into())),
        }
    }
}

impl Existing {
    fn of(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self::with(file, &metadata))
    }

    fn with(file: File, metadata: &Metadata) -> Self {
        Self { version: FileVersion::of(metadata), n_links: metadata.nlink(), file }
    }
}

/// Opens a directory under the root, component by component. `relative` had no symlinks when it was resolved.
fn directory(access: &Access, relative: &Path, purpose: Purpose) -> Result<File, PathError> {
    let open = |at: &File, name: &OsStr| sys::openat(at, name, DIRECTORY, Mode::empty());
    let mut at = File::from(
        sys::openat(access.handle(), ".", DIRECTORY, Mode::empty()).map_err(io::Error::from)?,
    );

    for component in relative.components() {
        let Component::Normal(name) = component else { return Err(PathError::Escapes) };
        let opened = match open(&at, name) {
            Err(Errno::NOENT) if purpose == Purpose::Write => {
                match sys::mkdirat(&at, name, NEW_DIRECTORY) {
                    Ok(()) | Err(Errno::EXIST) => open(&at, name),
                    Err(errno) => Err(errno),
                }
            }
            opened => opened,
        };
        at = match opened {
            Ok(below) => below.into(),
            Err(Errno::NOENT) => return Err(PathError::NotFound),
            // A link fails with one of these errors. A link here is new, and may already be gone again.
            Err(Errno::LOOP | Errno::NOTDIR) if is_on_the_move(&at, name) => {
                return Err(PathError::Escapes);
            }
            Err(Errno::NOTDIR) if purpose == Purpose::Edit => return Err(PathError::NotFound),
            Err(errno) => return Err(PathError::Io(errno.into())),
        };
    }
    Ok(at)
}

/// Returns true if a name that was not a directory is now a directory or a link.
fn is_on_the_move(at: &File, name: &OsStr) -> bool {
    let stat = sys::statat(at, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| {
        let kind = sys::FileType::from_raw_mode(stat.st_mode);
        kind.is_symlink() || kind.is_dir()
    })
}

/// Writes a new file, and locks it before it gets its name.
fn fill(mut file: &File, content: &[u8]) -> Result<(), WriteError> {
    // No other process has opened the file yet, so this does not wait.
    lock(file, Instant::now(), &|| false)?;
    file.write_all(content).map_err(write_failed)
}

fn overwrite(file: &mut File, content: &mut dyn io::Read) -> io::Result<()> {
    file.rewind()?;
    let len = io::copy(content, file)?;
    file.set_len(len)?;
    file.sync_all()
}

fn open_failed(source: io::Error) -> WriteError {
    WriteError::Io { call: "open", source }
}

fn write_failed(source: io::Error) -> WriteError {
    WriteError::Io { call: "write", source }
}

fn rename_failed(source: io::Error) -> WriteError {
    WriteError::Io { call: "rename", source }
}

#[cfg(test)]
mod tests;
