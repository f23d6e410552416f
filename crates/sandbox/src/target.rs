//! Where a write goes, and replacing what is there.
//!
//! Owns: the handle of the directory, so that the name that is replaced is one beneath the root whatever
//! happens to the path meanwhile; and the lock on the file that is there.

use crate::access::Access;
use crate::lock::{PATIENCE, lock};
use crate::staged::{Staged, StagedTag};
use crate::version::FileVersion;
use crate::{Kind, PathError, Root, WriteError};
use cap_std::fs::Dir;
use rustix::fs::{self as sys, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// How a directory on the way is opened. A single name, so that without links it cannot lead elsewhere:
/// this is as strict as openat2(2) and works everywhere.
#[cfg(target_os = "linux")]
const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How a file that is there is opened, whatever it is.
const EXISTING: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Mode of new files and directories; the umask is taken from it.
const NEW_FILE: Mode = Mode::RUSR
    .union(Mode::WUSR)
    .union(Mode::RGRP)
    .union(Mode::WGRP)
    .union(Mode::ROTH)
    .union(Mode::WOTH);
const NEW_DIRECTORY: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);

/// Mode of a file that is not yet what it will be.
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// What a target is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// New content for a file that may be missing; missing directories on the way are created.
    Write,
    /// Reading a file and replacing it.
    Edit,
}

/// What becomes of the other names of a file that has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherNames {
    /// They keep the old content; the name that is replaced becomes a file of its own.
    Leave,
    /// The file is written in place, so that all its names have the new content. For callers who have seen
    /// that all of them are beneath the root.
    Join,
}

/// A name beneath a root that is about to get new content.
///
/// As long as it lives, other workers that open the same file as a target wait.
#[derive(Debug)]
pub struct Target {
    parent: Arc<Dir>,
    name: OsString,
    relative: PathBuf,
    // INVARIANT: the file is locked, where the file system has locks, and the name led to it then.
    existing: Option<Existing>,
}

/// New content that lies beside its file. Removed when it is dropped.
#[derive(Debug)]
pub struct StagedContent {
    staged: Staged,
    way: Way,
}

/// How new content comes to its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Nothing has the name.
    New,
    /// The staged file takes the place of the old one.
    Over,
    /// The old file is written; the staged one becomes a copy of it before.
    Into,
}

impl StagedContent {
    /// Brings it to the disk. Where a file is written in place that is done later.
    ///
    /// # Errors
    /// [`WriteError::Io`].
    pub fn sync(&self) -> Result<(), WriteError> {
        match self.way {
            Way::New | Way::Over => self.staged.file.sync_all().map_err(write_failed),
            Way::Into => Ok(()),
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
    /// Opens what an argument names as the target of a write. Symlinks are followed while they lead to a
    /// place beneath the root, also the last one, and also to a place where nothing is yet.
    ///
    /// Blocks for at most five seconds while another worker writes the same file; `give_up` ends that.
    ///
    /// # Errors
    /// Every variant of [`WriteError`] but `Changed` and `TooLarge`.
    pub fn open_target(
        &self,
        argument: &str,
        purpose: Purpose,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Target, WriteError> {
        self.open_named(&|| self.real_name(argument), purpose, give_up)
    }

    /// The same for a name that a walk has found, relative to the root; it need not be UTF-8.
    ///
    /// # Errors
    /// As [`Root::open_target`].
    pub fn open_target_at(
        &self,
        relative: &Path,
        purpose: Purpose,
        give_up: &dyn Fn() -> bool,
    ) -> Result<Target, WriteError> {
        self.open_named(&|| self.real_name_at(relative), purpose, give_up)
    }

    /// Removes what a write of the name `beside` has left under `tag` when its process died. Nothing else can
    /// be removed in this way. False if there is nothing.
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
        loop {
            let relative = real_name()?;
            let name = relative.file_name().ok_or(PathError::IsDirectory)?.to_owned();
            let above = relative.parent().unwrap_or_else(|| Path::new(""));
            let parent = Arc::new(Dir::from_std_file(directory(self.access(), above, purpose)?));
            let mut target = Target { parent, name, relative, existing: None };
            match target.open_existing(purpose) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => match purpose {
                    Purpose::Write => return Ok(target),
                    Purpose::Edit => return Err(PathError::NotFound.into()),
                },
                // A link where none was a moment ago: where it leads is judged from the beginning.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {}
                Err(error) => return Err(self.refusal(error, &target.relative).into()),
                Ok(existing) => {
                    lock(&existing.file, until, give_up)?;
                    // Who held the lock has replaced the file: this one is not at the name any more.
                    // It cannot come back under the same number while we have it open.
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
        }
    }
}

impl Target {
    /// The name relative to the root, with every symlink resolved.
    #[must_use]
    pub fn relative(&self) -> &Path {
        &self.relative
    }

    /// The state of the file that is there, `None` if there is none.
    #[must_use]
    pub fn version(&self) -> Option<FileVersion> {
        self.existing.as_ref().map(|existing| existing.version)
    }

    /// How many names the file that is there has; 0 if there is none.
    #[must_use]
    pub fn n_names(&self) -> u64 {
        self.existing.as_ref().map_or(0, |existing| existing.n_links)
    }

    /// Reads the file that is there; nothing if there is none.
    ///
    /// # Errors
    /// [`WriteError::TooLarge`] if it has more than `max` bytes; [`WriteError::Io`].
    pub fn read(&mut self, max: u64) -> Result<Vec<u8>, WriteError> {
        let mut content = Vec::new();
        let Some(existing) = &mut self.existing else { return Ok(content) };
        if max < existing.version.len() {
            return Err(WriteError::TooLarge { len: existing.version.len() });
        }
        let failed = |source| WriteError::Io { call: "read", source };
        existing.file.rewind().map_err(failed)?;
        // What a file has grown by since it was opened is not read: it counts as changed later.
        (&existing.file).take(existing.version.len()).read_to_end(&mut content).map_err(failed)?;
        Ok(content)
    }

    /// Gives the name its new content: after a crash it has the old or the new one, and mode, owner and
    /// attributes stay. The target then holds the new file, still locked.
    ///
    /// Of a file with several names only this one gets the new content and becomes a file of its own: the
    /// others may be outside the root.
    ///
    /// A file whose owner cannot be kept is written in place instead, if it has no other name; a copy of the
    /// old content lies beside it until that is done.
    ///
    /// # Errors
    /// [`WriteError::Changed`] if the name no longer has the state of [`Target::version`];
    /// [`WriteError::GivenUp`]; [`WriteError::Io`], also for a file with several names whose owner cannot be
    /// kept. The old content is there then.
    pub fn replace(
        &mut self,
        content: &[u8],
        give_up: &dyn Fn() -> bool,
    ) -> Result<FileVersion, WriteError> {
        let tag = StagedTag::random().map_err(open_failed)?;
        let staged = self.stage(content, tag, OtherNames::Leave)?;
        staged.sync()?;
        let version = self.put(staged, content, give_up)?;
        self.sync_parent()?;
        Ok(version)
    }

    /// The first half of [`Target::replace`]: lays the new content beside the file, under `tag`, with a choice for
    /// other names of the file. It is on the disk when it is synced.
    ///
    /// When the process dies before it is put in its place, what lies under the tag is the new content, or a part
    /// of it, and the file is as it was; or, where the file is written in place, the old content as a whole.
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
            None => (create(NEW_FILE)?, Way::New),
            Some(existing) if other_names == OtherNames::Join && 1 < existing.n_links => {
                (create(PRIVATE)?, Way::Into)
            }
            Some(existing) => {
                let staged = create(PRIVATE)?;
                match staged.dress_as(&existing.file) {
                    Ok(()) => (staged, Way::Over),
                    Err(_) if existing.n_links <= 1 => (staged, Way::Into),
                    Err(error) => return Err(rename_failed(error)),
                }
            }
        };
        if way != Way::Into {
            fill(&staged.file, content)?;
        }
        Ok(StagedContent { staged, way })
    }

    /// The second half: gives the name its new content, which is `content` and was staged and synced. The new name
    /// lasts after [`Target::sync_parent`].
    ///
    /// # Errors
    /// As [`Target::replace`].
    pub fn put(
        &mut self,
        StagedContent { staged, way }: StagedContent,
        content: &[u8],
        give_up: &dyn Fn() -> bool,
    ) -> Result<FileVersion, WriteError> {
        let file = match way {
            Way::New => {
                if give_up() {
                    return Err(WriteError::GivenUp);
                }
                staged.create_as(&self.name).map_err(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => WriteError::Changed,
                    _ => rename_failed(error),
                })?
            }
            Way::Over => {
                self.check_unchanged(give_up)?;
                staged.replace(&self.name).map_err(rename_failed)?
            }
            Way::Into => self.put_into(staged, content, give_up)?,
        };
        let existing = Existing::of(file)?;
        let version = existing.version;
        self.existing = Some(existing);
        Ok(version)
    }

    /// Writes into the file itself, which must have as many names as it had when it was opened: a new one
    /// could be outside the root.
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

    /// The last look before the name gets its new content.
    fn check_unchanged(&self, give_up: &dyn Fn() -> bool) -> Result<(), WriteError> {
        if give_up() {
            return Err(WriteError::GivenUp);
        }
        if self.version_at_name()? == self.version() { Ok(()) } else { Err(WriteError::Changed) }
    }

    fn open_existing(&self, purpose: Purpose) -> io::Result<Existing> {
        let open = |flags| sys::openat(&self.parent, &self.name, flags | EXISTING, Mode::empty());
        let opened = match open(OFlags::RDONLY) {
            // A file may be written without being read.
            Err(Errno::ACCESS) if purpose == Purpose::Write => open(OFlags::WRONLY),
            opened => opened,
        };
        let file = File::from(opened?);
        // What the kernel says of a link that is opened in this way is `ELOOP`, of others nothing.
        match Kind::from_mode(file.metadata()?.mode()) {
            Kind::File => Existing::of(file),
            Kind::Directory => Err(Errno::ISDIR.into()),
            _ => Err(Errno::NXIO.into()),
        }
    }

    /// A file that we may not write is not replaced either, although its directory would allow it: so
    /// editors do, and so does a write in place.
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

    /// Makes the new name last. A directory that we may not read is left to the system.
    ///
    /// # Errors
    /// [`WriteError::Io`]; the name has its new content all the same.
    pub fn sync_parent(&self) -> Result<(), WriteError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(directory) = sys::openat(&self.parent, ".", flags, Mode::empty()) else {
            return Ok(());
        };
        match sys::fsync(directory) {
            // Some file systems have nothing to do for a directory.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(write_failed(errno.into())),
        }
    }
}

impl Existing {
    fn of(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self { version: FileVersion::of(&metadata), n_links: metadata.nlink(), file })
    }
}

/// Opens a directory beneath the root name by name; `relative` has no symlinks, or had none a moment ago.
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
            // Both are what a link is answered with, and a link here is new; it may be gone again.
            Err(Errno::LOOP | Errno::NOTDIR) if is_on_the_move(&at, name) => {
                return Err(PathError::Escapes);
            }
            Err(Errno::NOTDIR) if purpose == Purpose::Edit => return Err(PathError::NotFound),
            Err(errno) => return Err(PathError::Io(errno.into())),
        };
    }
    Ok(at)
}

/// Whether a name that just was no directory is one now, or a link.
fn is_on_the_move(at: &File, name: &OsStr) -> bool {
    let found = sys::statat(at, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| {
        let kind = sys::FileType::from_raw_mode(found.st_mode);
        kind.is_symlink() || kind.is_dir()
    })
}

/// Fills a new file, and locks it before it has its name.
fn fill(mut file: &File, content: &[u8]) -> Result<(), WriteError> {
    // Nobody else knows the file yet: this does not wait.
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
#[cfg(target_os = "linux")]
mod tests;
