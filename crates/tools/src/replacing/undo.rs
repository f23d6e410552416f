//! Taking back what was applied, and taking that back.

use super::Session;
use super::journal::{Entry, JournalError, UndoId};
use super::manifest::{Began, Line, Manifest, Step};
use super::recovery::recover;
use super::report::{Applied, Left, Outcome, UndoError};
use super::write::{Change, Place, write_all};
use quackd_search::replace::{Digest, MAX_FILE_BYTES};
use rustix::fs::{AtFlags, statat};
use std::collections::BTreeSet;

/// What is to be undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    /// The newest replacement that is not undone, or was made again.
    Last,
    /// The one with this id; also an undo, which is undone by making the replacement again.
    Id(String),
}

/// What undoing has done.
#[derive(Debug)]
pub(crate) struct Undone {
    /// What was undone.
    pub(crate) id: UndoId,
    /// What became of each file. Its `undo_id` is that of this undo.
    pub(crate) applied: Applied,
    /// What can be undone by its id instead, newest first, at most [`MAX_OLDER`]: only if the last one was meant and
    /// some of its files stay as they are. It is the last one still, and would be meant again.
    pub(crate) older: Vec<UndoId>,
}

/// Older ones that are named where the last one cannot be undone.
const MAX_OLDER: usize = 5;

/// Gives each file of an entry its original content, if it still has the content that was written. Others are left
/// as they are and reported.
///
/// # Errors
/// [`UndoError`]; nothing was written then.
pub(crate) fn undo_blocking(
    session: Session<'_>,
    which: &Which,
    cancelled: &dyn Fn() -> bool,
) -> Result<Undone, UndoError> {
    recover(session);
    let (id, manifest, mut older) = find(session, which)?;
    let unreadable = |reason| UndoError::Unreadable { id: id.clone(), reason };
    let mut originals = session.journal.originals_blocking(&id).map_err(unreadable)?;
    let (changes, steps) = changes(session, &manifest);
    let began = Began {
        v: 1,
        undoes: Some(id.to_string()),
        depth: manifest.began.depth.saturating_add(1),
        has_originals: true,
    };
    // Undoing is worth more than undoing the undoing: without room for originals it goes without.
    let begun = begin(session, &began, &id, &changes, &steps, &manifest).or_else(|_| {
        let began = Began { has_originals: false, ..began.clone() };
        begin(session, &began, &id, &changes, &steps, &manifest)
    });
    let is_kept = begun.as_ref().is_ok_and(|(entry, _)| entry.has_originals());
    let (mut entry, dropped) = match begun {
        Ok((entry, dropped)) => (Some(entry), dropped),
        Err(_) => (None, Vec::new()),
    };
    let mut content = |number: usize, _: &[u8]| {
        let step =
            steps.get(number).and_then(|step| manifest.steps.get(*step)).ok_or(Left::Damaged)?;
        let original = originals.read(step, MAX_FILE_BYTES).map_err(|_| Left::Damaged)?;
        if Digest::of(&original) == step.before { Ok(original) } else { Err(Left::Damaged) }
    };
    let place = Place { root: session.root, confinement: session.confinement, seen: session.seen };
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
            // A replacement again, and the last one: without it an older one would be taken for the last.
            session.journal.keep_marker_blocking(&own);
        } else {
            // Nothing to undo. What cannot be removed is dropped when it is the oldest.
            let _removed = session.journal.remove_blocking(&own);
        }
    }
    let is_restored = |outcome: &Outcome| {
        matches!(outcome, Outcome::Written { .. } | Outcome::Left(Left::Already))
    };
    if applied.files.iter().all(|file| is_restored(&file.outcome)) {
        let by = applied.undo_id.as_ref().map_or_else(|| "-".to_owned(), UndoId::to_string);
        // Where it cannot be written down another undo finds that there is nothing to do.
        let _noted = session.journal.add_blocking(&id, &[Line::Undone(by)]);
        older.clear();
    }
    Ok(Undone { id, applied, older })
}

/// The entry that is meant, and what could be meant in its place.
fn find(session: Session<'_>, which: &Which) -> Result<(UndoId, Manifest, Vec<UndoId>), UndoError> {
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

/// The steps of an entry the other way round, in the order of their paths, with the numbers of the steps.
fn changes(session: Session<'_>, manifest: &Manifest) -> (Vec<Change>, Vec<usize>) {
    let mut seen = BTreeSet::new();
    let mut changes: Vec<(Change, usize)> = Vec::new();
    for (number, step) in manifest.steps.iter().enumerate() {
        // A forged entry may name a file twice.
        if !seen.insert(&step.path) {
            continue;
        }
        let torn = manifest.torn.get(&number).copied();
        let change = Change {
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

fn shared(session: Session<'_>, step: &Step) -> Option<(u64, u64)> {
    let above = step.path.parent()?;
    let directory = session.root.open_directory(above).ok()?;
    let stat = statat(&directory, step.path.file_name()?, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let device = super::links::device(&stat);
    (1 < stat.st_nlink).then_some((device, stat.st_ino))
}

type Begun<'a> = (Entry<'a>, Vec<UndoId>);

/// An entry for what the undo replaces: about as much as it puts back.
fn begin<'a>(
    session: Session<'a>,
    began: &Began,
    kept: &UndoId,
    changes: &[Change],
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
