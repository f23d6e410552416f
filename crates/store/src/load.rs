//! Reading the two files at start, whatever is there instead of them. Called once by the supervisor.

use crate::StoreError;
use crate::document::Document;
use crate::quarantine::quarantine_blocking;
use crate::replace::with_suffix;
use crate::validate::{Duplicate, Invalid, parse};
use quackd_protocol::metadata::Metadata;
use quackd_protocol::state::DaemonState;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What was loaded of `metadata.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The metadata, empty if there was none to be had.
    pub metadata: Metadata,
    /// Where it comes from. Everything but `Fresh` and `File` belongs in the log and in `doctor`.
    pub origin: Origin,
    /// Entries that were left out, the first hundred of each kind.
    pub duplicates: Vec<Duplicate>,
}

/// What was loaded of `quackd-state.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedState {
    /// The state, empty if there was none to be had. Entries without a session are still in it.
    pub state: DaemonState,
    /// Where it comes from. If it is `Backup` or `Lost`, a session without an entry may have had one.
    pub origin: Origin,
    /// Entries that were left out, the first hundred of them.
    pub duplicates: Vec<Duplicate>,
}

/// Where a document comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// There was no file: a first start.
    Fresh,
    /// The file.
    File,
    /// The generation before, because the file was missing or could not be used.
    Backup {
        /// Where the bad file is now; `None` if it was missing.
        quarantined: Option<PathBuf>,
        /// What was wrong with it.
        reason: String,
        /// When that generation was written, for people.
        saved_at: Option<SystemTime>,
    },
    /// Nothing: the file could not be used, and there is no good backup.
    Lost {
        /// Where the bad file is now.
        quarantined: PathBuf,
        /// What was wrong with it.
        reason: String,
    },
}

/// Reads the metadata at `path`. A file that cannot be used is moved to `<path>.corrupt-<n>` and its
/// `.bak` read instead (P-11).
///
/// # Errors
/// [`StoreError::TooNew`] and [`StoreError::Read`] leave everything untouched: the caller may go on
/// without writing. `ReadOnly`, `Full` and `Io` say that a bad file could not be moved aside; the same
/// holds.
pub fn load_blocking(path: &Path) -> Result<Loaded, StoreError> {
    let (Good { document, duplicates, .. }, origin) = load_document(path)?;
    Ok(Loaded { metadata: document, origin, duplicates })
}

/// Reads the state at `path`, by the rules of [`load_blocking`].
///
/// # Errors
/// As [`load_blocking`].
pub fn load_state_blocking(path: &Path) -> Result<LoadedState, StoreError> {
    let (Good { document, duplicates, .. }, origin) = load_document(path)?;
    Ok(LoadedState { state: document, origin, duplicates })
}

fn load_document<D: Document>(path: &Path) -> Result<(Good<D>, Origin), StoreError> {
    let file = read(path)?;
    if let Content::Good(good) = file {
        return Ok((good, Origin::File));
    }
    // The backup is looked at before anything is moved, so that an error leaves all as it was.
    let backup_path = with_suffix(path, ".bak");
    let backup = read(&backup_path)?;
    let bad_file = set_aside(path, &file, path)?;
    // A bad backup is moved too: the next saves would write over it.
    let bad_backup = set_aside(&backup_path, &backup, path)?;
    if let Content::Good(good) = backup {
        let saved_at = good.saved_at;
        // No first start leaves a backup: the file was lost in a crash, or by somebody's hand.
        let missing = || (None, "the file is missing".to_owned());
        let (quarantined, reason) = bad_file.map_or_else(missing, |(to, why)| (Some(to), why));
        return Ok((good, Origin::Backup { quarantined, reason, saved_at }));
    }
    let origin = match bad_file.or(bad_backup) {
        Some((quarantined, reason)) => Origin::Lost { quarantined, reason },
        None => Origin::Fresh,
    };
    let nothing = Good { document: D::default(), duplicates: Vec::new(), saved_at: None };
    Ok((nothing, origin))
}

/// Moves bad content away; answers where it is now and what was wrong with it.
fn set_aside<D>(
    at: &Path,
    content: &Content<D>,
    original: &Path,
) -> Result<Option<(PathBuf, String)>, StoreError> {
    let Content::Bad(reason) = content else { return Ok(None) };
    let to = quarantine_blocking(at, original).map_err(|e| StoreError::write(at, e))?;
    Ok(Some((to, reason.clone())))
}

/// What stands at a path.
enum Content<D> {
    Missing,
    Good(Good<D>),
    /// With the reason.
    Bad(String),
}

struct Good<D> {
    document: D,
    duplicates: Vec<Duplicate>,
    saved_at: Option<SystemTime>,
}

fn read<D: Document>(path: &Path) -> Result<Content<D>, StoreError> {
    // O_NONBLOCK: the open of a FIFO would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(Content::Missing),
        // These are about what stands there; a socket is ENXIO. All others may pass.
        Err(e @ (Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::NXIO | Errno::NODEV)) => {
            return Ok(Content::Bad(io::Error::from(e).to_string()));
        }
        Err(errno) => return Err(StoreError::read(path, errno.into())),
    };
    let status = file.metadata().map_err(|e| StoreError::read(path, e))?;
    if !status.is_file() {
        return Ok(Content::Bad("not a regular file".to_owned()));
    }
    let limit = D::MAX_BYTES;
    let too_big = || Content::Bad(format!("larger than {limit} bytes"));
    if limit < status.len() {
        return Ok(too_big());
    }
    let mut bytes = Vec::new();
    // It may grow while it is read.
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    let length = u64::try_from(read.map_err(|e| StoreError::read(path, e))?);
    if length.is_ok_and(|length| limit < length) {
        return Ok(too_big());
    }
    match parse(&bytes) {
        Ok((document, duplicates)) => {
            Ok(Content::Good(Good { document, duplicates, saved_at: status.modified().ok() }))
        }
        Err(Invalid::Damaged { reason }) => Ok(Content::Bad(reason)),
        Err(Invalid::TooNew { found }) => {
            Err(StoreError::TooNew { path: path.to_owned(), found, known: D::VERSION })
        }
    }
}
