//! Applies a plan.

use super::manifest::EntryHeader;
use super::recovery::recover;
use super::report::{Applied, ApplyError, JournalError, LeftReason};
use super::session_journal::EntryWriter;
use super::undo_id::UndoId;
use super::write::{PlannedWrite, WriteContext, write_all};
use super::{Backup, Expect, JournalSession};
use quackd_search::replace::{Digest, Editor, FilePlan, MAX_FILE_BYTES, ReplacePlan};
use std::io::Read as _;
use std::path::PathBuf;

/// Maximum number of changed files that an error names.
const MAX_NAMED: usize = 10;

/// Writes the new content of the planned files, if the plan is complete and matches the caller's expectations.
/// Skips files whose content changed since planning, and protected files.
///
/// `cancelled` is checked between files. Only a user's abort should set it: a started replacement should finish
/// even after the deadline.
///
/// # Errors
/// [`ApplyError`]. In this case nothing was written.
pub(crate) fn apply_blocking(
    session: JournalSession<'_>,
    plan: &ReplacePlan,
    expect: &Expect,
    backup: Backup,
    cancelled: &dyn Fn() -> bool,
) -> Result<Applied, ApplyError> {
    recover(session);

    if !plan.is_complete() {
        return Err(ApplyError::Incomplete);
    }
    check_expected(plan, expect)?;

    let editor = Editor::new(&plan.request)?;
    if expect.unchanged {
        check_unchanged(session, plan)?;
    }

    if plan.files.is_empty() {
        let interrupted = session.journal.untold_blocking();
        return Ok(Applied { interrupted, ..Applied::default() });
    }

    let planned: Vec<PlannedWrite> = plan.files.iter().map(change).collect();
    let changes: Vec<&PlannedWrite> = planned.iter().collect();
    let (mut entry, dropped) = match begin(session, plan, backup) {
        Ok((entry, dropped)) => (Some(entry), dropped),
        // Without originals, the journal only serves to clean up after a crash.
        Err(_) if backup == Backup::None => (None, Vec::new()),
        Err(error) => return Err(error.into()),
    };

    let place =
        WriteContext { root: session.root, confinement: session.confinement, seen: session.seen };

    // The plan contains only digests, so each file is edited once more when it is written.
    let mut content = |_: usize, old: &[u8]| match editor.edit(old) {
        Ok(Some(edited)) => Ok(edited.new),
        Ok(None) => Err(LeftReason::Conflict),
        Err(reason) => Err(LeftReason::Skipped(reason)),
    };

    let (files, stopped) = write_all(place, &changes, entry.as_mut(), &mut content, cancelled);
    let interrupted = session.journal.untold_blocking();
    let mut applied = Applied { files, stopped, dropped, interrupted, undo_id: None };

    if let Some(entry) = entry {
        let id = entry.id.clone();
        let has_written = applied.n_written() != 0;
        // If the end cannot be recorded, the entry counts as interrupted, which has no effect on files.
        entry.end().ok();
        if has_written && backup == Backup::Journal {
            applied.undo_id = Some(id);
        } else if has_written {
            session.journal.keep_marker_blocking(&id);
        } else {
            // The entry contains nothing to undo. If its removal fails, it is dropped when it is the oldest.
            session.journal.remove_blocking(&id).ok();
        }
    }
    Ok(applied)
}

fn begin<'a>(
    session: JournalSession<'a>,
    plan: &ReplacePlan,
    backup: Backup,
) -> Result<(EntryWriter<'a>, Vec<UndoId>), JournalError> {
    let has_originals = backup == Backup::Journal;
    let n_bytes = plan.files.iter().filter(|_| has_originals).map(|file| file.len_before).sum();
    let paths = plan.files.iter().map(|file| file.path.as_os_str().len() as u64).sum();
    let began = EntryHeader::new(session.author, has_originals);
    session.journal.begin_blocking(began, n_bytes, paths, plan.files.len(), None)
}

fn change(file: &FilePlan) -> PlannedWrite {
    PlannedWrite {
        path: file.path.clone(),
        before: vec![Some(file.before)],
        after: Some(file.after),
        shared: (1 < file.n_names).then_some(file.file_id),
    }
}

fn check_expected(plan: &ReplacePlan, expect: &Expect) -> Result<(), ApplyError> {
    let numbers = [
        ("files", expect.files, plan.files.len() as u64),
        ("lines", expect.lines, plan.lines_changed),
        ("replacements", expect.replacements, plan.replacements),
    ];
    for (what, expected, found) in numbers {
        match expected {
            Some(expected) if expected != found => {
                return Err(ApplyError::Expected { what, expected, found });
            }
            Some(_) | None => {}
        }
    }
    Ok(())
}

/// Checks all files before the first write. Files that change after the check are skipped.
fn check_unchanged(session: JournalSession<'_>, plan: &ReplacePlan) -> Result<(), ApplyError> {
    let is_changed = |file: &&FilePlan| {
        let mut content = Vec::new();
        let read = session
            .root
            .open_relative(&file.path)
            .and_then(|open| open.take(MAX_FILE_BYTES + 1).read_to_end(&mut content));
        read.is_err() || Digest::of(&content) != file.before
    };

    let changed: Vec<PathBuf> =
        plan.files.iter().filter(is_changed).map(|file| file.path.clone()).collect();
    if changed.is_empty() {
        return Ok(());
    }
    let n = changed.len();
    Err(ApplyError::Changed { n, first: changed.into_iter().take(MAX_NAMED).collect() })
}
