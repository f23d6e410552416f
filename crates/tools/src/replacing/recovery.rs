//! After a death: what it left beside files is removed, and what it interrupted is told. No file is changed.

use super::Session;
use super::journal::UndoId;
use super::manifest::{Line, Manifest, Step};
use super::report::Interrupted;
use quackd_search::replace::{Digest, MAX_FILE_BYTES};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Looks for replacements of this session that ended with the process that made them; the journal keeps what was
/// found until it is told. Once per worker, before anything else is applied or undone; other calls find nothing to
/// do. Gives the number of those found.
pub(super) fn recover(session: Session<'_>) -> usize {
    let _one_at_a_time = session.journal.recovering_blocking();
    let unfinished = session.journal.unfinished_blocking();
    let found =
        unfinished.into_iter().filter_map(|(id, manifest)| recover_one(session, id, manifest));
    session.journal.tell_later_blocking(found.collect())
}

fn recover_one(session: Session<'_>, id: UndoId, mut manifest: Manifest) -> Option<Interrupted> {
    if !manifest.is_swept {
        let mut lines = sweep(session, &mut manifest);
        lines.push(Line::Swept);
        // Where it cannot be written down the next worker looks again.
        let _noted = session.journal.add_blocking(&id, &lines);
    }
    if manifest.undone_by.is_some() {
        return None;
    }
    let is_change = |step: &Step| digest(session, &step.path) == Some(step.after);
    if !manifest.began.has_originals && manifest.steps.iter().any(is_change) {
        session.journal.keep_marker_blocking(&id);
        return None;
    }
    if manifest.steps.is_empty() || !manifest.began.has_originals {
        // Nothing to undo.
        let _removed = session.journal.remove_blocking(&id);
        return None;
    }
    let mut found = Interrupted { undo_id: id, n_new: 0, n_old: 0, n_torn: 0, n_other: 0 };
    for (number, step) in manifest.steps.iter().enumerate() {
        let digest = digest(session, &step.path);
        let torn = manifest.torn.get(&number);
        *(match digest {
            Some(digest) if digest == step.after => &mut found.n_new,
            Some(digest) if digest == step.before => &mut found.n_old,
            Some(digest) if torn == Some(&digest) => &mut found.n_torn,
            Some(_) | None => &mut found.n_other,
        }) += 1;
    }
    Some(found)
}

/// Removes what lies beside files. A whole original beside a file that is neither old nor new says that the file was
/// being written in place; that it is to be restored is noted first.
fn sweep(session: Session<'_>, manifest: &mut Manifest) -> Vec<Line> {
    let mut lines = Vec::new();
    for (number, step) in manifest.steps.iter().enumerate() {
        if manifest.wrote.contains(&number) || session.confinement.protects(&step.path).is_some() {
            continue;
        }
        let Some(staged) = digest(session, &staged_path(step)) else { continue };
        let now = digest(session, &step.path);
        let is_torn =
            staged == step.before && now.is_some_and(|now| now != step.before && now != step.after);
        if let Some(now) = now.filter(|_| is_torn) {
            manifest.torn.insert(number, now);
            lines.push(Line::Torn(number, now));
            // Nobody else has the original.
            if !manifest.began.has_originals {
                continue;
            }
        }
        // What cannot be removed is looked for by nobody else; it has a name that says whose it is.
        let _removed = session.root.remove_staged(&step.path, step.tag);
    }
    lines
}

fn staged_path(step: &Step) -> PathBuf {
    step.path.with_file_name(step.tag.file_name())
}

/// Of a file that a walk could have found.
fn digest(session: Session<'_>, path: &Path) -> Option<Digest> {
    let mut content = Vec::new();
    let file = session.root.open_relative(path).ok()?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).ok()?;
    Some(Digest::of(&content))
}
