//! Undoes and redoes replacements and single changes.

use super::JournalSession;
use super::journal_dir::JournalDir;
use super::manifest::{EntryHeader, ManifestLine};
use super::recovery::recover;
use super::report::{Applied, FileReport, JournalError, LeftReason, UndoError, WriteOutcome};
use super::select::{Members, Selected, Source, Undoable, Which, select};
use super::session_journal::EntryWriter;
use super::undo_id::UndoId;
use super::write::{PlannedWrite, WriteContext, write_all};
use quackd_search::replace::{Digest, MAX_FILE_BYTES};
use rustix::fs::{AtFlags, statat};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Result of an undo.
#[derive(Debug, Clone)]
pub(crate) struct Undone {
    /// Id of the undone replacement or change, or the undone call or turn.
    pub(crate) what: String,
    /// Result for each file. Its `undo_id` is the id of this undo.
    pub(crate) applied: Applied,
    /// Files that were restored to the content that another program wrote between the undone changes.
    pub(crate) partly: Vec<PathBuf>,
    /// Files that were deleted, because the undone change had created them.
    pub(crate) deleted: Vec<PathBuf>,
    /// Other replacements and changes that can be undone by id, newest first. Filled only if the last one was requested
    /// and some of its files did not change. It then stays the last one, so a repeated request selects it again.
    pub(crate) older: Vec<UndoId>,
}

/// Restores the original content of each selected file, if the file still has the written content. Other files are skipped
/// and reported.
///
/// # Errors
/// [`UndoError`]. In this case nothing was written.
pub(crate) fn undo_blocking(
    session: JournalSession<'_>,
    which: &Which,
    cancelled: &dyn Fn() -> bool,
) -> Result<Undone, UndoError> {
    recover(session);
    let mut previous = None;
    loop {
        let (undone, is_change) = undo_once(session, which, cancelled)?;
        let is_already =
            |file: &FileReport| file.outcome == WriteOutcome::Left(LeftReason::Already);
        // A worker that dies between the record of a change and the change leaves such a record. It is marked as undone
        // now, so the next round selects the change before it.
        let is_void = is_change && undone.applied.files.iter().all(is_already);
        if *which != Which::Last || !is_void || previous.as_ref() == Some(&undone.what) {
            return Ok(undone);
        }
        previous = Some(undone.what);
    }
}

/// Undoes, and returns whether it was a single change.
fn undo_once(
    session: JournalSession<'_>,
    which: &Which,
    cancelled: &dyn Fn() -> bool,
) -> Result<(Undone, bool), UndoError> {
    let Selected { what, steps, members, depth, older } = select(session.journal, which)?;
    let unreadable = |reason| UndoError::Unreadable { what: what.clone(), reason };
    let folder = session.journal.folder().map_err(unreadable)?;

    let restores = restores(session, &steps);
    let changes: Vec<&PlannedWrite> = restores.iter().map(|restore| &restore.write).collect();

    let began = EntryHeader {
        undoes: Some(what.clone()),
        depth: depth.saturating_add(1),
        ..EntryHeader::new(session.author, true)
    };
    // An undo is more important than its own redo: without space for originals, continue without them.
    let kept = members.entries.first();
    let begun = begin(session, &began, kept, &restores).or_else(|_| {
        let began = EntryHeader { has_originals: false, ..began.clone() };
        begin(session, &began, kept, &restores)
    });
    let is_kept = begun.as_ref().is_ok_and(|(entry, _)| entry.has_originals());
    let (mut entry, dropped) = match begun {
        Ok((entry, dropped)) => (Some(entry), dropped),
        Err(_) => (None, Vec::new()),
    };

    let mut content = |number: usize, _: &[u8]| {
        let restore = restores.get(number).ok_or(LeftReason::Damaged)?;
        let original = original(session, &folder, restore).map_err(|_| LeftReason::Damaged)?;
        if Some(Digest::of(&original)) == restore.write.after {
            Ok(original)
        } else {
            Err(LeftReason::Damaged)
        }
    };

    let place =
        WriteContext { root: session.root, confinement: session.confinement, seen: session.seen };
    let (mut files, stopped) = write_all(place, &changes, entry.as_mut(), &mut content, cancelled);

    // A file without an original was planned with its present content, so `Already` means that nothing was restored.
    for (file, restore) in files.iter_mut().zip(&restores) {
        if restore.is_not_kept && file.outcome == WriteOutcome::Left(LeftReason::Already) {
            file.outcome = WriteOutcome::Left(LeftReason::NotKept);
        }
    }

    let interrupted = session.journal.untold_blocking();
    let mut applied = Applied { files, stopped, dropped, interrupted, undo_id: None };
    if let Some(entry) = entry {
        applied.undo_id = end(session, entry, &began, is_kept, applied.n_written() != 0);
    }

    let older = if mark_undone(session, &members, &applied) { Vec::new() } else { older };
    let of_written = |is_meant: fn(&Restore<'_>) -> bool| -> Vec<PathBuf> {
        let written = restores.iter().zip(&applied.files).filter(|(restore, file)| {
            is_meant(restore) && matches!(file.outcome, WriteOutcome::Written { .. })
        });
        written.map(|(restore, _)| restore.write.path.clone()).collect()
    };
    let partly = of_written(|restore| restore.is_partial);
    let deleted = of_written(|restore| restore.write.after.is_none());
    let is_change = members.entries.is_empty();
    Ok((Undone { what, applied, partly, deleted, older }, is_change))
}

/// Records which changes are undone. Returns whether all are. An entry is undone if all files have their old content.
fn mark_undone(session: JournalSession<'_>, members: &Members, applied: &Applied) -> bool {
    let is_restored = |outcome: &WriteOutcome| {
        matches!(outcome, WriteOutcome::Written { .. } | WriteOutcome::Left(LeftReason::Already))
    };
    let left = applied.files.iter().filter(|file| !is_restored(&file.outcome));
    let left: BTreeSet<&Path> = left.map(|file| file.path.as_path()).collect();
    let by = applied.undo_id.as_ref().map_or_else(|| "-".to_owned(), UndoId::to_string);
    if left.is_empty() {
        for id in &members.entries {
            // If this cannot be recorded, another undo finds nothing to do.
            session.journal.add_blocking(id, &[ManifestLine::Undone(by.clone())]).ok();
        }
    }

    let undone = members.changes.iter().filter(|(_, path)| !left.contains(path.as_path()));
    let undone: Vec<u64> = undone.map(|(number, _)| *number).collect();
    session.journal.changes_undone_blocking(&undone, &by);
    left.is_empty()
}

/// Ends the entry of an undo. Returns its id if it can be undone.
fn end(
    session: JournalSession<'_>,
    entry: EntryWriter<'_>,
    began: &EntryHeader,
    is_kept: bool,
    has_written: bool,
) -> Option<UndoId> {
    let own = entry.id.clone();
    // An entry without an end counts as interrupted, which has no effect on files.
    entry.end().ok();
    if is_kept && has_written {
        return Some(own);
    }
    if has_written && began.depth.is_multiple_of(2) {
        // A redo without originals must stay the last entry. Otherwise an older entry would count as the last.
        session.journal.keep_marker_blocking(&own);
    } else {
        // The entry contains nothing to undo. If its removal fails, it is dropped when it is the oldest.
        session.journal.remove_blocking(&own).ok();
    }
    None
}

/// The restoration of one file.
struct Restore<'a> {
    write: PlannedWrite,
    /// The change whose original is restored.
    source: &'a Undoable,
    /// Whether another program changed the file between the undone changes.
    is_partial: bool,
    /// Whether the original is not in the journal.
    is_not_kept: bool,
}

/// Returns the files to restore, sorted by path. A file that was changed several times is restored to the content before the
/// first change, or before the first one after another program changed it.
fn restores<'a>(session: JournalSession<'_>, steps: &'a [Undoable]) -> Vec<Restore<'a>> {
    let mut by_path: BTreeMap<&Path, Vec<&Undoable>> = BTreeMap::new();
    for step in steps {
        by_path.entry(&step.path).or_default().push(step);
    }

    let restore = |(path, steps): (&Path, Vec<&'a Undoable>)| {
        let mut newest_first = steps.into_iter().rev();
        let newest = newest_first.next()?;
        let (mut source, mut is_partial) = (newest, false);
        for step in newest_first {
            // Go back only as far as the changes follow each other and the older content is kept.
            let is_next = matches!(source.before, Some(before) if before == step.after);
            if !is_next || step.before.is_none() {
                is_partial = true;
                break;
            }
            source = step;
        }

        let is_not_kept = source.before.is_none();
        let write = PlannedWrite {
            path: path.to_path_buf(),
            before: [newest.after].into_iter().chain(newest.torn.map(Some)).collect(),
            // Without an original nothing is written.
            after: source.before.unwrap_or(newest.after),
            shared: shared(session, path),
        };
        Some(Restore { write, source, is_partial, is_not_kept })
    };

    by_path.into_iter().filter_map(restore).collect()
}

fn original(
    session: JournalSession<'_>,
    folder: &JournalDir,
    restore: &Restore<'_>,
) -> io::Result<Vec<u8>> {
    match &restore.source.source {
        Source::Entry(id, step) => {
            session.journal.originals_blocking(id)?.read(step, MAX_FILE_BYTES)
        }
        Source::Log(change) => change.original(folder),
    }
}

fn shared(session: JournalSession<'_>, path: &Path) -> Option<(u64, u64)> {
    let directory = session.root.open_directory(path.parent()?).ok()?;
    let stat = statat(&directory, path.file_name()?, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let device = crate::platform::device(&stat);
    (1 < stat.st_nlink).then_some((device, stat.st_ino))
}

type Begun<'a> = (EntryWriter<'a>, Vec<UndoId>);

/// Creates an entry for the content that the undo replaces.
fn begin<'a>(
    session: JournalSession<'a>,
    began: &EntryHeader,
    kept: Option<&UndoId>,
    restores: &[Restore<'_>],
) -> Result<Begun<'a>, JournalError> {
    let lens = restores.iter().map(|restore| {
        let opened = session.root.open_relative(&restore.write.path);
        let now = opened.and_then(|file| file.metadata()).map_or(0, |metadata| metadata.len());
        now.max(restore.source.len).min(MAX_FILE_BYTES)
    });
    let n_bytes = if began.has_originals { lens.sum() } else { 0 };
    let paths = restores.iter().map(|restore| restore.write.path.as_os_str().len() as u64).sum();
    session.journal.begin_blocking(began.clone(), n_bytes, paths, restores.len(), kept)
}
