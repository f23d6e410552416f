//! Opens the two files at start: loads our state, and imports what another program has written since the last run.
//! Called once by the supervisor.
//!
//! `quackd-state.json` is the truth. If it is missing, damaged, or of a version that kept no sessions in it, importing
//! `metadata.json` into an empty state rebuilds it.

use crate::import::{Recent, import, is_equivalent, take_values};
use crate::save::{Files, Paths, ours_name, theirs_name};
use quackd_protocol::SessionId;
use quackd_protocol::metadata::Metadata;
use quackd_store::{Duplicate, FILE_IS_MISSING, Loaded, Origin, Snapshot, StateFile, StoreError};
use quackd_store::{load_blocking, read_good_blocking, with_suffix};
use std::collections::HashSet;
use std::time::Instant;

/// Source of a file and the entries that were left out, or the reason why it must not be written.
type Source = Result<(Origin, Vec<Duplicate>), StoreError>;

/// Result of opening the files.
#[derive(Debug)]
pub struct Opened {
    /// Everything durable. May be incomplete if a file must not be written.
    pub snapshot: Snapshot,
    /// Source of `metadata.json`.
    pub metadata: Source,
    /// Source of `quackd-state.json`. With `Backup` or `Lost`, settings of some sessions may be missing.
    pub state: Source,
    /// Number of sessions that `metadata.json` lacked.
    pub restored: usize,
    /// `None` if a file must not be written.
    pub files: Option<Files>,
}

/// Loads both files (P-11) and imports what another program has written, also during a save that a kill cut short
/// (P-12). Writes nothing; the first save does.
#[must_use]
pub fn open_blocking(paths: Paths) -> Opened {
    let state = load_blocking::<StateFile>(&paths.state);
    let mut file = load_blocking::<Metadata>(&paths.metadata);
    let mut files = None;

    // Nothing is written if one of the files cannot be read: it may be valid.
    if let (Ok(state), Ok(metadata)) = (&state, &file) {
        match catch_up_blocking(paths, state, metadata) {
            Ok(opened) => files = Some(opened),
            Err(error) => file = Err(error),
        }
    }

    let snapshot = files.as_ref().map_or_else(|| read_only(&state, &file), Files::durable);
    let known = file.as_ref().map(|loaded| ids(&loaded.document)).unwrap_or_default();
    let sessions = snapshot.metadata.sessions.iter();
    let restored = sessions.filter(|session| !known.contains(&session.id)).count();

    let metadata = file.map(|loaded| (with_ours(loaded.origin, restored), loaded.duplicates));
    let state = state.map(|loaded| (loaded.origin, loaded.duplicates));
    Opened { snapshot, metadata, state, restored, files }
}

/// Imports the file and leftovers into our own state.
fn catch_up_blocking(
    paths: Paths,
    state: &Loaded<StateFile>,
    file: &Loaded<Metadata>,
) -> Result<Files, StoreError> {
    let (now, mut recent) = (Instant::now(), Recent::default());
    let (is_intact, has_file) = (state.origin == Origin::File, file.origin == Origin::File);
    let own = state.document.metadata.as_ref();

    let of_older_version = read_good_blocking::<Metadata>(&ours_name(&paths.metadata))?;
    let ours = match (own, of_older_version.as_ref()) {
        (Some(own), _) if is_intact => own,
        (_, Some(older)) => older,
        // The generation before may have sessions that were deleted since.
        (Some(own), None) if !has_file => own,
        _ => &file.document,
    };

    let mut before = None;
    if is_intact {
        before = read_good_blocking::<StateFile>(&with_suffix(&paths.state, ".bak"))?;
    }
    let before = before.map(|generation| generation.metadata.unwrap_or_else(|| ours.clone()));
    recent.restore(&state.document.earlier, now);
    if let Some(before) = &before {
        // A kill may have left the view of the generation before, or another program an old copy.
        recent.note(before, ours, now);
    }

    // After a kill, it is unknown which of our changes the other program has seen.
    let is_settled = is_intact && state.document.is_settled;
    if !is_settled {
        recent.doubt(now);
    }

    let mut metadata = ours.clone();
    // The last save took this file out of the way of its view and did not import it. It is older than the file.
    let theirs = read_good_blocking(&theirs_name(&paths.metadata))?;
    if let (true, Some(theirs)) = (is_intact, &theirs) {
        take_values(&mut metadata, theirs, &recent, now);
    }
    // Only what the other program changed counts, compared with quackd's own state.
    if has_file {
        let imported = import(ours, &recent, &metadata, &file.document, now);
        metadata = imported.gone.without(&imported.metadata);
        let is_view = |view: &Metadata| is_equivalent(&file.document, view);
        // A view of the last daemon does not show what the other program has read.
        if !is_view(ours) && !before.as_ref().is_some_and(is_view) {
            recent.seen(&file.document);
        }
    // The file is a backup or empty, so that it has lost entries does not count as a deletion.
    } else {
        add_unknown(&mut metadata, file.document.clone(), &recent, now);
    }

    for leftover in [theirs, of_older_version].into_iter().flatten() {
        add_unknown(&mut metadata, leftover, &recent, now);
    }

    let durable =
        Snapshot { metadata: metadata.into(), state: state.document.state.clone().into() };
    let held = if has_file { file.document.clone() } else { Metadata::default() };
    let is_settled = is_settled || state.origin == Origin::Fresh;
    Ok(Files::new(paths, durable, held, file.stamp, recent, is_settled))
}

/// Adds the sessions that only `theirs` has. The file is older than the others, so nothing else of it counts.
fn add_unknown(metadata: &mut Metadata, mut theirs: Metadata, recent: &Recent, now: Instant) {
    let known = ids(metadata);
    theirs.sessions.retain(|session| !known.contains(&session.id));

    let used: HashSet<_> =
        theirs.sessions.iter().map(|session| session.workspace_id.clone()).collect();
    theirs.workspaces.retain(|workspace| used.contains(&workspace.id));
    for workspace in &mut theirs.workspaces {
        workspace.last_active_session_id = None;
        workspace.other.clear();
    }

    theirs.other.clear();
    theirs.active_voice_session_id = None;
    *metadata = import(&Metadata::default(), recent, metadata, &theirs, now).metadata;
}

fn ids(metadata: &Metadata) -> HashSet<SessionId> {
    metadata.sessions.iter().map(|session| session.id.clone()).collect()
}

/// Returns the content that can be shown if a file must not be written.
fn read_only(
    state: &Result<Loaded<StateFile>, StoreError>,
    file: &Result<Loaded<Metadata>, StoreError>,
) -> Snapshot {
    let state = state.as_ref().map(|loaded| loaded.document.clone()).unwrap_or_default();
    let file = file.as_ref().map(|loaded| loaded.document.clone());
    let metadata = state.metadata.or_else(|| file.ok()).unwrap_or_default();
    Snapshot { metadata: metadata.into(), state: state.state.into() }
}

/// Tells that our own state was used instead of an unusable or missing file.
fn with_ours(origin: Origin, restored: usize) -> Origin {
    let saved_at = None;
    match origin {
        Origin::Lost { quarantined, reason } if restored != 0 => {
            Origin::Backup { quarantined: Some(quarantined), reason, saved_at }
        }
        Origin::Fresh if restored != 0 => {
            Origin::Backup { quarantined: None, reason: FILE_IS_MISSING.to_owned(), saved_at }
        }
        origin => origin,
    }
}
