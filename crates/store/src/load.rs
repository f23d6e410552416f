//! Reading the two files at start, whatever is there instead of them. Called once by the supervisor.

use crate::StoreError;
use crate::document::Document;
use crate::merge::{Recent, merge};
use crate::quarantine::quarantine_blocking;
use crate::replace::with_suffix;
use crate::stamp::Stamp;
use crate::swap::{Unrecovered, ours_name, recover_blocking, theirs_name};
use crate::validate::{Duplicate, Invalid, parse};
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

/// What was loaded of `metadata.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The metadata, empty if there was none to be had.
    pub metadata: Metadata,
    /// Where it comes from. Everything but `Fresh` and `File` belongs in the log and in `doctor`.
    pub origin: Origin,
    /// Entries that were left out, the first hundred of each kind.
    pub duplicates: Vec<Duplicate>,
    /// Sessions that a daemon that was killed had kept, and another program had then written over.
    pub restored: usize,
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
/// `.bak` read instead (P-11), or the last file that we wrote, if the daemon was killed. What another program
/// has written then is merged with that (P-12).
///
/// # Errors
/// [`StoreError::TooNew`] and [`StoreError::Read`] leave everything untouched: the caller may go on
/// without writing. `ReadOnly`, `Full` and `Io` say that a bad file could not be moved aside; the same
/// holds.
pub fn load_blocking(path: &Path) -> Result<Loaded, StoreError> {
    match recover_blocking(path, Metadata::MAX_BYTES) {
        Err(Unrecovered::Unread(error)) => return Err(StoreError::read(path, error)),
        // A directory that cannot be written is met again by whoever saves.
        Ok(()) | Err(Unrecovered::Unwritten) => {}
    }
    let newest = ours_name(path);
    let (Good { document, duplicates, .. }, origin) = load_document(path, Some(&newest))?;
    let mut metadata: Metadata = document;
    let restored = merge_leftovers(path, &mut metadata)?;
    Ok(Loaded { metadata, origin, duplicates, restored })
}

/// Reads the state at `path`, by the rules of [`load_blocking`].
///
/// # Errors
/// As [`load_blocking`].
pub fn load_state_blocking(path: &Path) -> Result<LoadedState, StoreError> {
    let (Good { document, duplicates, .. }, origin) = load_document(path, None)?;
    Ok(LoadedState { state: document, origin, duplicates })
}

/// Brings in what is left of a daemon that was killed: what it wrote last, and what another program had
/// written that it had not read yet. Nothing of either is lost, and nothing counts as deleted. Gives how many
/// sessions `loaded` alone did not have.
fn merge_leftovers(path: &Path, loaded: &mut Metadata) -> Result<usize, StoreError> {
    let ours = match read_good(&ours_name(path))? {
        Some(ours) => ours,
        None if theirs_name(path).exists() => loaded.clone(),
        None => return Ok(0),
    };
    let now = Instant::now();
    let mut recent = Recent::default();
    let bak = with_suffix(path, ".bak");
    let theirs = Stamp::at_blocking(&theirs_name(path));
    // If what stood there before ours was that file, what ours lacks of it was not deleted: it was not read.
    let is_theirs = theirs.is_some() && Stamp::at_blocking(&bak) == theirs;
    if let Some(before) = read_good(&bak)?.filter(|_| !is_theirs) {
        recent.note(&before, &ours, now);
    }
    let n_before = loaded.sessions.len();
    let mut merged = match ours == *loaded {
        true => ours,
        false => merge(&ours, &ours, loaded, &mut recent, now).metadata,
    };
    if let Some(mut theirs) = read_good::<Metadata>(&theirs_name(path))? {
        // Older than what the file says: of what is known there, that counts.
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

/// What stands at a path, if it is something for us.
fn read_good<D: Document>(path: &Path) -> Result<Option<D>, StoreError> {
    match read(path) {
        Ok(Content::Good(good)) => Ok(Some(good.document)),
        Ok(Content::Missing | Content::Bad(_)) | Err(StoreError::TooNew { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `newest` is where the newest generation may have another name.
fn load_document<D: Document>(
    path: &Path,
    newest: Option<&Path>,
) -> Result<(Good<D>, Origin), StoreError> {
    let file = read(path)?;
    if let Content::Good(good) = file {
        return Ok((good, Origin::File));
    }
    // The backup is looked at before anything is moved, so that an error leaves all as it was.
    let backup_path = with_suffix(path, ".bak");
    let backup = read(&backup_path)?;
    let newest = newest.map(read::<D>).transpose()?;
    let bad_file = set_aside(path, &file, path)?;
    // A bad backup is moved too: the next saves would write over it.
    let bad_backup = set_aside(&backup_path, &backup, path)?;
    // A bad one of that name is not kept: it was cut off by a power cut, or spoilt by the disk.
    let usable = newest.into_iter().chain([backup]).find_map(|content| match content {
        Content::Good(good) => Some(good),
        Content::Missing | Content::Bad(_) => None,
    });
    if let Some(good) = usable {
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
    let nothing =
        Good { document: D::default(), duplicates: Vec::new(), saved_at: None, stamp: None };
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
pub(crate) enum Content<D> {
    Missing,
    Good(Good<D>),
    /// With the reason.
    Bad(String),
}

pub(crate) struct Good<D> {
    pub(crate) document: D,
    duplicates: Vec<Duplicate>,
    saved_at: Option<SystemTime>,
    /// Which file it is.
    pub(crate) stamp: Option<Stamp>,
}

pub(crate) fn read<D: Document>(path: &Path) -> Result<Content<D>, StoreError> {
    // O_NONBLOCK: the open of a FIFO would wait for a writer. A link is not what either program makes: it is set
    // aside, and what it points to is left alone.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(Content::Missing),
        Err(Errno::LOOP) => return Ok(Content::Bad("a symbolic link".to_owned())),
        // These are about what stands there; a socket is ENXIO. All others may pass.
        Err(e @ (Errno::ACCESS | Errno::PERM | Errno::NXIO | Errno::NODEV)) => {
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
            let (saved_at, stamp) = (status.modified().ok(), Some(Stamp::of(&status)));
            Ok(Content::Good(Good { document, duplicates, saved_at, stamp }))
        }
        Err(Invalid::Damaged { reason }) => Ok(Content::Bad(reason)),
        Err(Invalid::TooNew { found }) => {
            Err(StoreError::TooNew { path: path.to_owned(), found, known: D::VERSION })
        }
    }
}
