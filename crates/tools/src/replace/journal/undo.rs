//! Undoes and redoes applied plans.

use super::JournalSession;
use super::manifest::{EntryHeader, FileRecord, Manifest, ManifestLine};
use super::recovery::recover;
use super::report::{Applied, LeftReason, UndoError, WriteOutcome};
use super::session_journal::{EntryWriter, JournalError, UndoId};
use super::write::{PlannedWrite, WriteContext, write_all};
use quackd_search::replace::{Digest, MAX_FILE_BYTES};
use rustix::fs::{AtFlags, statat};
use std::collections::BTreeSet;

/// Entry to undo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    /// The newest replacement that is not undone, or was redone.
    Last,
    /// The entry with this id. Undoing an undo redoes the replacement.
    Id(String),
}

/// Result of an undo.
#[derive(Debug, Clone)]
pub(crate) struct Undone {
    /// Id of the undone entry.
    pub(crate) id: UndoId,
    /// Result for each file. Its `undo_id` is the id of this undo.
    pub(crate) applied: Applied,
    /// Other entries that can be undone by id, newest first, at most [`MAX_OLDER`]. Filled only if the last
    /// replacement was requested and some of its files did not change. It then stays the last one, so a
    /// repeated request selects it again.
    pub(crate) older: Vec<UndoId>,
}

/// Maximum number of older entries that are named if the last one cannot be undone.
const MAX_OLDER: usize = 5;

/// Restores the original content of each file of an entry, if the file still has the written content. Other
/// files are skipped and reported.
///
/// # Errors
/// [`UndoError`]. In this case nothing was written.
pub(crate) fn undo_blocking(
    session: JournalSession<'_>,
    which: &Which,
    cancelled: &dyn Fn() -> bool,
) -> Result<Undone, UndoError> {
    recover(session);
    let (id, manifest, mut older) = find(session, which)?;
    let unreadable = |reason| UndoError::Unreadable { id: id.clone(), reason };
    let mut originals = session.journal.originals_blocking(&id).map_err(unreadable)?;
    let (changes, steps) = changes(session, &manifest);
    let began = EntryHeader {
        v: 1,
        undoes: Some(id.to_string()),
        depth: manifest.began.depth.saturating_add(1),
        has_originals: true,
    };
    // An undo is more important than its own redo: without space for originals, continue without them.
    let begun = begin(session, &began, &id, &changes, &steps, &manifest).or_else(|_| {
        let began = EntryHeader { has_originals: false, ..began.clone() };
        begin(session, &began, &id, &changes, &steps, &manifest)
    });
    let is_kept = begun.as_ref().is_ok_and(|(entry, _)| entry.has_originals());
    let (mut entry, dropped) = match begun {
        Ok((entry, dropped)) => (Some(entry), dropped),
        Err(_) => (None, Vec::new()),
    };
    let mut content = |number: usize, _: &[u8]| {
        let step = steps
            .get(number)
            .and_then(|step| manifest.steps.get(*step))
            .ok_or(LeftReason::Damaged)?;
        let original = originals.read(step, MAX_FILE_BYTES).map_err(|_| LeftReason::Damaged)?;
        if Digest::of(&original) == step.before { Ok(original) } else { Err(LeftReason::Damaged) }
    };
    let place =
        WriteContext { root: session.root, confinement: session.confinement, seen: session.seen };
    let (files, stopped) = write_all(place, &changes, entry.as_mut(), &mut content, cancelled);
    let interrupted = session.journal.untold_blocking();
    let mut applied = Applied { files, stopped, dropped, interrupted, undo_id: None };
    if let Some(entry) = entry {
        let own = entry.id.clone();
        let _ended = entry.end();
        let has_written = applied.n_written() != 0;
        if is_kept && has_written {
            applied.undo_id = Some(own);
        } else if has_written && began.depth.is_multiple_of(2) {
            // A redo without originals must stay the last entry. Otherwise an older entry would count as the
            // last.
            session.journal.keep_marker_blocking(&own);
        } else {
            // The entry contains nothing to undo. If its removal fails, it is dropped when it is the oldest.
            let _removed = session.journal.remove_blocking(&own);
        }
    }
    let is_restored = |outcome: &WriteOutcome| {
        matches!(outcome, WriteOutcome::Written { .. } | WriteOutcome::Left(LeftReason::Already))
    };
    if applied.files.iter().all(|file| is_restored(&file.outcome)) {
        let by = applied.undo_id.as_ref().map_or_else(|| "-".to_owned(), UndoId::to_string);
        // If this cannot be recorded, another undo finds nothing to do.
        let _noted = session.journal.add_blocking(&id, &[ManifestLine::Undone(by)]);
        older.clear();
    }
    Ok(Undone { id, applied, older })
}

/// Returns the entry to undo, and alternatives.
fn find(
    session: JournalSession<'_>,
    which: &Which,
) -> Result<(UndoId, Manifest, Vec<UndoId>), UndoError> {
    let mut entries = session.journal.entries_blocking();
    match which {
        Which::Last => {
            entries.retain(|(_, manifest)| {
                manifest.began.depth.is_multiple_of(2) && manifest.undone_by.is_none()
            });
            let (id, manifest) = entries.pop().ok_or(UndoError::Nothing)?;
            let older = entries.into_iter().rev().filter(|(_, older)| older.began.has_originals);
            let older = older.map(|(id, _)| id).take(MAX_OLDER).collect();
            if !manifest.began.has_originals {
                return Err(UndoError::LastHasNoOriginals { id, older });
            }
            Ok((id, manifest, older))
        }
        Which::Id(text) => {
            let id = UndoId::parse(text).ok_or_else(|| UndoError::Unknown(text.clone()))?;
            if session.journal.is_active_blocking(&id) {
                return Err(UndoError::Running(id));
            }
            let found = entries.into_iter().find(|(known, _)| *known == id);
            let (id, manifest) = found.ok_or_else(|| UndoError::Unknown(text.clone()))?;
            if let Some(by) = manifest.undone_by {
                return Err(UndoError::AlreadyUndone { id, by });
            }
            if !manifest.began.has_originals {
                return Err(UndoError::NoOriginals(id));
            }
            Ok((id, manifest, Vec::new()))
        }
    }
}

/// Returns the reversed steps of an entry, sorted by path, with the step numbers.
fn changes(session: JournalSession<'_>, manifest: &Manifest) -> (Vec<PlannedWrite>, Vec<usize>) {
    let mut seen = BTreeSet::new();
    let mut changes: Vec<(PlannedWrite, usize)> = Vec::new();
    for (number, step) in manifest.steps.iter().enumerate() {
        // A forged entry may name a file twice.
        if !seen.insert(&step.path) {
            continue;
        }
        let torn = manifest.torn.get(&number).copied();
        let change = PlannedWrite {
            path: step.path.clone(),
            before: [step.after].into_iter().chain(torn).collect(),
            after: step.before,
            shared: shared(session, step),
        };
        changes.push((change, number));
    }
    changes.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
    changes.into_iter().unzip()
}

fn shared(session: JournalSession<'_>, step: &FileRecord) -> Option<(u64, u64)> {
    let above = step.path.parent()?;
    let directory = session.root.open_directory(above).ok()?;
    let stat = statat(&directory, step.path.file_name()?, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let device = super::links::device(&stat);
    (1 < stat.st_nlink).then_some((device, stat.st_ino))
}

type Begun<'a> = (EntryWriter<'a>, Vec<UndoId>);

/// Creates an entry for the content that the undo replaces, which is about as large as the restored content.
fn begin<'a>(
    session: JournalSession<'a>,
    began: &EntryHeader,
    kept: &UndoId,
    changes: &[PlannedWrite],
    steps: &[usize],
    manifest: &Manifest,
) -> Result<Begun<'a>, JournalError> {
    let lens = changes.iter().zip(steps).map(|(change, step)| {
        let opened = session.root.open_relative(&change.path);
        let now = opened.and_then(|file| file.metadata()).map_or(0, |metadata| metadata.len());
        let original = manifest.steps.get(*step).map_or(0, |step| step.len);
        now.max(original).min(MAX_FILE_BYTES)
    });
    let n_bytes = if began.has_originals { lens.sum() } else { 0 };
    let paths = changes.iter().map(|change| change.path.as_os_str().len() as u64).sum();
    session.journal.begin_blocking(began.clone(), n_bytes, paths, changes.len(), Some(kept))
}
