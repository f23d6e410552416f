//! Reads one of the two files and recovers from damage.

use crate::StoreError;
use crate::document::DurableDocument;
use crate::duplicates::Duplicate;
use crate::quarantine::quarantine_blocking;
use crate::replace::with_suffix;
use crate::stamp::FileStamp;
use crate::validate::{Invalid, parse};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Result of loading one of the two files.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded<D> {
    /// Empty if no usable file was found.
    pub document: D,
    /// Source of the document. The daemon logs every source except `Fresh` and `File`, and `doctor` shows it.
    pub origin: Origin,
    /// Entries that were left out, at most 100 of each kind.
    pub duplicates: Vec<Duplicate>,
    /// Identifies the file; `None` unless the origin is `File`.
    pub stamp: Option<FileStamp>,
}

/// Reason in [`Origin::Backup`] if the file is missing.
pub const FILE_IS_MISSING: &str = "the file is missing";

/// Source of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// No file: the first start.
    Fresh,
    /// The file itself.
    File,
    /// The previous generation or, for `metadata.json`, our own state: the file was missing or unusable.
    Backup {
        /// New path of the bad file; `None` if the file was missing.
        quarantined: Option<PathBuf>,
        /// Reason why the file was not used.
        reason: String,
        /// Modification time of that generation. For display only.
        saved_at: Option<SystemTime>,
    },
    /// Empty: the file was unusable and there is no good backup.
    Lost {
        /// New path of the bad file.
        quarantined: PathBuf,
        /// Reason why the file was not used.
        reason: String,
    },
}

/// Reads the document at `path`. Moves an unusable file to `<path>.corrupt-<n>` and reads `<path>.bak` instead
/// (P-11).
///
/// # Errors
/// [`StoreError::TooNew`] and [`StoreError::Read`]: all files are unchanged, and the caller may continue
/// without writing. `ReadOnly`, `Full` and `Io`: a bad file could not be moved aside. The caller may continue
/// without writing then, too.
pub fn load_blocking<D: DurableDocument>(path: &Path) -> Result<Loaded<D>, StoreError> {
    let file = read_blocking(path)?;
    if let FileContent::Good(Good { document, duplicates, stamp, .. }) = file {
        return Ok(Loaded { document, origin: Origin::File, duplicates, stamp });
    }

    // Read the backup before moving anything, so that an error leaves all files unchanged.
    let backup_path = with_suffix(path, ".bak");
    let backup = read_blocking::<D>(&backup_path)?;
    let bad_file = set_aside(path, &file, path)?;
    // Move a bad backup too: the next saves would overwrite it.
    let bad_backup = set_aside(&backup_path, &backup, path)?;

    if let FileContent::Good(Good { document, duplicates, saved_at, .. }) = backup {
        // A first start leaves no backup, so the file was lost in a crash or was deleted.
        let missing = || (None, FILE_IS_MISSING.to_owned());
        let (quarantined, reason) = bad_file.map_or_else(missing, |(to, why)| (Some(to), why));
        let origin = Origin::Backup { quarantined, reason, saved_at };
        return Ok(Loaded { document, origin, duplicates, stamp: None });
    }

    let origin = match bad_file.or(bad_backup) {
        Some((quarantined, reason)) => Origin::Lost { quarantined, reason },
        None => Origin::Fresh,
    };
    Ok(Loaded { document: D::default(), origin, duplicates: Vec::new(), stamp: None })
}

/// Returns the document at a path, or `None` if it is missing or unusable.
///
/// # Errors
/// [`StoreError::Read`]: the file may be valid.
pub fn read_good_blocking<D: DurableDocument>(path: &Path) -> Result<Option<D>, StoreError> {
    match read_blocking(path) {
        Ok(FileContent::Good(good)) => Ok(Some(good.document)),
        Ok(FileContent::Missing | FileContent::Bad(_)) | Err(StoreError::TooNew { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Quarantines bad content. Returns its new path and the reason.
fn set_aside<D>(
    at: &Path,
    content: &FileContent<D>,
    original: &Path,
) -> Result<Option<(PathBuf, String)>, StoreError> {
    let FileContent::Bad(reason) = content else { return Ok(None) };
    let to = quarantine_blocking(at, original).map_err(|e| StoreError::write(at, e))?;
    Ok(Some((to, reason.clone())))
}

/// Result of reading a path.
#[derive(Debug)]
pub enum FileContent<D> {
    /// The path has no file.
    Missing,
    /// A usable document.
    Good(Good<D>),
    /// The reason why the content is unusable.
    Bad(String),
}

/// A usable document and its file.
#[derive(Debug)]
pub struct Good<D> {
    /// Content of the file.
    pub document: D,
    duplicates: Vec<Duplicate>,
    saved_at: Option<SystemTime>,
    /// Identifies the file that was read.
    pub stamp: Option<FileStamp>,
}

/// Reads and parses the file at a path. Changes nothing.
///
/// # Errors
/// [`StoreError::TooNew`] and [`StoreError::Read`].
pub fn read_blocking<D: DurableDocument>(path: &Path) -> Result<FileContent<D>, StoreError> {
    // O_NONBLOCK: opening a FIFO would wait for a writer. O_NOFOLLOW: neither program creates a link, so a
    // link is quarantined and its target is left unchanged.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(FileContent::Missing),
        Err(Errno::LOOP) => return Ok(FileContent::Bad("a symbolic link".to_owned())),
        // These errors describe the file itself; a socket is ENXIO. All other errors may be temporary.
        Err(e @ (Errno::ACCESS | Errno::PERM | Errno::NXIO | Errno::NODEV)) => {
            return Ok(FileContent::Bad(io::Error::from(e).to_string()));
        }
        Err(errno) => return Err(StoreError::read(path, errno.into())),
    };

    let status = file.metadata().map_err(|e| StoreError::read(path, e))?;
    if !status.is_file() {
        return Ok(FileContent::Bad("not a regular file".to_owned()));
    }

    let limit = D::MAX_BYTES;
    let too_big = || FileContent::Bad(format!("larger than {limit} bytes"));
    if limit < status.len() {
        return Ok(too_big());
    }

    let mut bytes = Vec::new();
    // The file may grow while it is read.
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    let length = u64::try_from(read.map_err(|e| StoreError::read(path, e))?);
    if length.is_ok_and(|length| limit < length) {
        return Ok(too_big());
    }

    match parse(&bytes) {
        Ok((document, duplicates)) => {
            let (saved_at, stamp) = (status.modified().ok(), Some(FileStamp::of(&status)));
            Ok(FileContent::Good(Good { document, duplicates, saved_at, stamp }))
        }
        Err(Invalid::Damaged { reason }) => Ok(FileContent::Bad(reason)),
        Err(Invalid::TooNew { found }) => {
            Err(StoreError::TooNew { path: path.to_owned(), found, known: D::VERSION })
        }
    }
}
