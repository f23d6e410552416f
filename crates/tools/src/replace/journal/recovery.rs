//! Recovers after a crash: removes temporary files and reports interrupted replacements. Changes no other file.

use super::JournalSession;
use super::manifest::{FileRecord, Manifest, ManifestLine};
use super::report::InterruptedReplace;
use super::undo_id::UndoId;
use quackd_search::replace::{Digest, MAX_FILE_BYTES};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Finds replacements that a crash of the worker interrupted. The journal stores them until they are reported.
/// Runs once per worker, before any replacement is applied or undone; further calls find nothing. Returns the
/// number of interrupted replacements.
pub(super) fn recover(session: JournalSession<'_>) -> usize {
    let _one_at_a_time = session.journal.recovering_blocking();
    let unfinished = session.journal.unfinished_blocking();
    let interrupted =
        unfinished.into_iter().filter_map(|(id, manifest)| recover_one(session, id, manifest));
    session.journal.tell_later_blocking(interrupted.collect())
}

fn recover_one(
    session: JournalSession<'_>,
    id: UndoId,
    mut manifest: Manifest,
) -> Option<InterruptedReplace> {
    if !manifest.is_swept {
        let mut lines = sweep(session, &mut manifest);
        lines.push(ManifestLine::Swept);
        // If this cannot be recorded, the next worker searches again.
        session.journal.add_blocking(&id, &lines).ok();
    }
    if manifest.undone_by.is_some() {
        return None;
    }

    let is_change = |step: &FileRecord| digest(session, &step.path) == step.after;

    // Some content cannot be restored. The marker keeps an undo from taking back an older change in its place.
    if !manifest.began.has_originals && manifest.steps.iter().any(is_change) {
        session.journal.keep_marker_blocking(&id);
        return None;
    }

    if manifest.steps.is_empty() || !manifest.began.has_originals {
        // The entry contains nothing to undo.
        session.journal.remove_blocking(&id).ok();
        return None;
    }

    let mut interrupted =
        InterruptedReplace { undo_id: id, n_new: 0, n_old: 0, n_torn: 0, n_other: 0 };
    for (number, step) in manifest.steps.iter().enumerate() {
        let digest = digest(session, &step.path);
        let torn = manifest.torn.get(&number);
        *(match digest {
            now if now == step.after => &mut interrupted.n_new,
            now if now == step.before => &mut interrupted.n_old,
            Some(digest) if torn == Some(&digest) => &mut interrupted.n_torn,
            Some(_) | None => &mut interrupted.n_other,
        }) += 1;
    }

    Some(interrupted)
}

/// Removes temporary files. If a complete original is next to a file that is neither old nor new, the file was
/// being written in place: first records that it must be restored.
fn sweep(session: JournalSession<'_>, manifest: &mut Manifest) -> Vec<ManifestLine> {
    let mut lines = Vec::new();
    for (number, step) in manifest.steps.iter().enumerate() {
        if manifest.wrote.contains(&number) || session.confinement.protects(&step.path).is_some() {
            continue;
        }

        let Some(staged) = digest(session, &staged_path(step)) else { continue };
        let now = digest(session, &step.path);
        let is_torn =
            Some(staged) == step.before && now.is_some() && now != step.before && now != step.after;
        if let Some(now) = now.filter(|_| is_torn) {
            manifest.torn.insert(number, now);
            lines.push(ManifestLine::Torn(number, now));
            // The temporary file is the only copy of the original.
            if !manifest.began.has_originals {
                continue;
            }
        }

        // If the removal fails, the file stays. Its name shows that it is quackd's.
        session.root.remove_staged(&step.path, step.tag).ok();
    }
    lines
}

fn staged_path(step: &FileRecord) -> PathBuf {
    step.path.with_file_name(step.tag.file_name())
}

/// Returns the digest of a file that a walk could have found.
fn digest(session: JournalSession<'_>, path: &Path) -> Option<Digest> {
    let mut content = Vec::new();
    let file = session.root.open_relative(path).ok()?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).ok()?;
    Some(Digest::of(&content))
}
