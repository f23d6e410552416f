//! Loads the two files at start and recovers from damaged ones. Called once by the supervisor.

use crate::StoreError;
use crate::document::DurableDocument;
use crate::duplicates::Duplicate;
use crate::exchange::{RecoveryError, ours_name, recover_blocking, theirs_name};
use crate::merge::{RecentChanges, merge};
use crate::quarantine::quarantine_blocking;
use crate::replace::with_suffix;
use crate::stamp::FileStamp;
use crate::validate::{Invalid, parse};
use quackd_protocol::SessionId;
use quackd_protocol::metadata::Metadata;
use quackd_protocol::state::DaemonState;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

/// Result of loading `metadata.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// Empty if no usable file was found.
    pub metadata: Metadata,
    /// Source of the metadata. The daemon logs every source except `Fresh` and `File`, and `doctor` shows it.
    pub origin: Origin,
    /// Entries that were left out, at most 100 of each kind.
    pub duplicates: Vec<Duplicate>,
    /// Number of sessions that a killed daemon had saved and another program had then overwritten.
    pub restored: usize,
}

/// Result of loading `quackd-state.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedState {
    /// Empty if no usable file was found. Still contains entries without a session.
    pub state: DaemonState,
    /// Source of the state. With `Backup` or `Lost`, entries of some sessions may be missing.
    pub origin: Origin,
    /// Entries that were left out, at most 100.
    pub duplicates: Vec<Duplicate>,
}

/// Source of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// No file: the first start.
    Fresh,
    /// The file itself.
    File,
    /// The previous generation, because the file was missing or unusable.
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

/// Reads the metadata at `path`. Moves an unusable file to `<path>.corrupt-<n>` and reads `<path>.bak`
/// instead (P-11). After a kill it reads the recovery copy first, and merges changes that another program
/// wrote since (P-12).
///
/// # Errors
/// [`StoreError::TooNew`] and [`StoreError::Read`]: all files are unchanged, and the caller may continue
/// without writing. `ReadOnly`, `Full` and `Io`: a bad file could not be moved aside. The caller may continue
/// without writing then, too.
pub fn load_blocking(path: &Path) -> Result<Loaded, StoreError> {
    match recover_blocking(path, Metadata::MAX_BYTES) {
        Err(RecoveryError::Unread(error)) => return Err(StoreError::read(path, error)),
        // If the directory is not writable, the next save reports it.
        Ok(()) | Err(RecoveryError::Unwritten) => {}
    }
    let newest = ours_name(path);
    let (Good { document, duplicates, .. }, origin) = load_document(path, Some(&newest))?;
    let mut metadata: Metadata = document;
    let restored = merge_leftovers(path, &mut metadata)?;
    Ok(Loaded { metadata, origin, duplicates, restored })
}

/// Reads the state at `path` like [`load_blocking`], without a recovery copy.
///
/// # Errors
/// As [`load_blocking`].
pub fn load_state_blocking(path: &Path) -> Result<LoadedState, StoreError> {
    let (Good { document, duplicates, .. }, origin) = load_document(path, None)?;
    Ok(LoadedState { state: document, origin, duplicates })
}

/// Merges the files that a killed daemon left: its last save, and an external file that it had not read.
/// Deletes nothing. Returns the number of sessions that `loaded` alone did not have.
fn merge_leftovers(path: &Path, loaded: &mut Metadata) -> Result<usize, StoreError> {
    let ours = match read_good(&ours_name(path))? {
        Some(ours) => ours,
        None if theirs_name(path).exists() => loaded.clone(),
        None => return Ok(0),
    };
    let now = Instant::now();
    let mut recent = RecentChanges::default();
    let bak = with_suffix(path, ".bak");
    let theirs = FileStamp::at_blocking(&theirs_name(path));
    // If the backup is that external file, quackd never read it. Then entries that are missing in `ours` were
    // not deleted.
    let is_theirs = theirs.is_some() && FileStamp::at_blocking(&bak) == theirs;
    if let Some(before) = read_good(&bak)?.filter(|_| !is_theirs) {
        recent.note(&before, &ours, now);
    }
    let n_before = loaded.sessions.len();
    let mut merged = match ours == *loaded {
        true => ours,
        false => merge(&ours, &ours, loaded, &mut recent, now).metadata,
    };
    if let Some(mut theirs) = read_good::<Metadata>(&theirs_name(path))? {
        // The external file is older than the loaded one, so it only adds sessions that are unknown.
        let known: HashSet<&SessionId> = merged.sessions.iter().map(|it| &it.id).collect();
        theirs.sessions.retain(|session| !known.contains(&session.id));
        theirs.other.clear();
        theirs.active_voice_session_id = None;
        merged = merge(&Metadata::default(), &merged, &theirs, &mut recent, now).metadata;
    }
    let restored = merged.sessions.len().saturating_sub(n_before);
    *loaded = merged;
    Ok(restored)
}

/// Returns the document at a path, or `None` if it is missing or unusable.
fn read_good<D: DurableDocument>(path: &Path) -> Result<Option<D>, StoreError> {
    match read(path) {
        Ok(FileContent::Good(good)) => Ok(Some(good.document)),
        Ok(FileContent::Missing | FileContent::Bad(_)) | Err(StoreError::TooNew { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `newest` is the recovery copy, which may contain the newest generation.
fn load_document<D: DurableDocument>(
    path: &Path,
    newest: Option<&Path>,
) -> Result<(Good<D>, Origin), StoreError> {
    let file = read(path)?;
    if let FileContent::Good(good) = file {
        return Ok((good, Origin::File));
    }
    // Read the backup before moving anything, so that an error leaves all files unchanged.
    let backup_path = with_suffix(path, ".bak");
    let backup = read(&backup_path)?;
    let newest = newest.map(read::<D>).transpose()?;
    let bad_file = set_aside(path, &file, path)?;
    // Move a bad backup too: the next saves would overwrite it.
    let bad_backup = set_aside(&backup_path, &backup, path)?;
    // Do not keep a bad recovery copy: a power failure truncated it, or the disk damaged it.
    let usable = newest.into_iter().chain([backup]).find_map(|content| match content {
        FileContent::Good(good) => Some(good),
        FileContent::Missing | FileContent::Bad(_) => None,
    });
    if let Some(good) = usable {
        let saved_at = good.saved_at;
        // A first start leaves no backup, so the file was lost in a crash or was deleted.
        let missing = || (None, "the file is missing".to_owned());
        let (quarantined, reason) = bad_file.map_or_else(missing, |(to, why)| (Some(to), why));
        return Ok((good, Origin::Backup { quarantined, reason, saved_at }));
    }
    let origin = match bad_file.or(bad_backup) {
        Some((quarantined, reason)) => Origin::Lost { quarantined, reason },
        None => Origin::Fresh,
    };
    let nothing =
        Good { document: D::default(), duplicates: Vec::new(), saved_at: None, stamp: None };
    Ok((nothing, origin))
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
pub(crate) enum FileContent<D> {
    Missing,
    Good(Good<D>),
    /// The reason.
    Bad(String),
}

pub(crate) struct Good<D> {
    pub(crate) document: D,
    duplicates: Vec<Duplicate>,
    saved_at: Option<SystemTime>,
    /// Identifies the file that was read.
    pub(crate) stamp: Option<FileStamp>,
}

pub(crate) fn read<D: DurableDocument>(path: &Path) -> Result<FileContent<D>, StoreError> {
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
