//! Writes changes of one side to the other, so that they can be taken back.
//!
//! While the journal is in the directory of the unfinished, the next command takes back what was written. Its removal, or
//! its rename to the directory of the finished, is the moment at which the changes count.

use crate::changes::Change;
use crate::error::{IsolateError, OnFile as _};
use crate::journal::{
    Content, Pending, RECORD, TakenBack, begin, has_plan, remove_directory, take_back, write,
};
use crate::manifest::{Common, CopyPaths, Manifest, Texts};
use crate::node::{self, ContentHash, Node};
use crate::notes::Notes;
use crate::plan::{Decision, text_of};
use crate::tree::{Direction, Sides, Tree};
use jiff::Timestamp;
use quackd_protocol::isolate::ApplyOutcome;
use rustix::fs::Mode;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

/// Directory of changes that are being written.
fn unfinished(paths: &CopyPaths, direction: Direction) -> PathBuf {
    match direction {
        Direction::Apply => paths.applying(),
        Direction::Refresh => paths.refreshing(),
    }
}

/// Writes all decisions that write, and records the new common state. Those of [`Direction::Apply`] can be taken back
/// later.
pub(crate) fn apply(
    paths: &CopyPaths,
    manifest: &mut Manifest,
    sides: Sides<'_>,
    texts: &mut Texts,
    decided: &[(Change, Decision)],
) -> Result<(), IsolateError> {
    let Sides { direction, source, target } = sides;
    let pending = decided.iter().filter(|(_, decision)| decision.writes());
    let pending: Result<Vec<Pending<'_>>, IsolateError> = pending
        .map(|(change, decision)| {
            let (before, stamp) = (change.target.clone(), change.target_stamp);
            let content = content(source, change, decision);
            Pending::new(target, &change.path, before, stamp, decision.after.clone(), content)
        })
        .collect();
    let pending = pending?;

    let journal = unfinished(paths, direction);
    begin(&journal, target, &pending, Some(&paths.manifest()))?;

    // A directory that the source still has stays.
    let is_gone = |above: &Path| source.stat(above).is_ok_and(|stat| stat.is_none());
    if let Err(error) = write(target, &pending, is_gone) {
        // If this fails too, the next command takes it back.
        roll_back(paths, direction, target, &mut Notes::default())?;
        return Err(error);
    }

    for (change, decision) in decided {
        if decision.writes() || decision.outcome == ApplyOutcome::Same {
            record(manifest, sides, texts, change)?;
        }
    }

    if direction == Direction::Refresh {
        let at_ms = Timestamp::now().as_millisecond();
        let written = decided.iter().filter(|(_, decision)| decision.writes());
        manifest.refreshed.extend(written.map(|(change, _)| (change.path.clone(), at_ms)));
    }

    // The record must not name texts that a crash could lose.
    texts.sync()?;
    manifest.write(&paths.manifest())?;

    // A refresh has no undo, so it counts once its journal is gone.
    if direction == Direction::Refresh {
        return remove_directory(&journal);
    }

    // `rename` replaces no directory with content. Only the last apply can be taken back.
    let finished = paths.applied();
    remove_directory(&finished)?;
    rustix::fs::rename(&journal, &finished).on("finish", &finished)?;
    let above = finished.parent().unwrap_or(&finished);
    File::open(above).and_then(|above| above.sync_all()).on("sync", above)
}

/// Returns the content of a decision: the merged one, else that of the source.
fn content<'a>(source: &'a Tree, change: &'a Change, decision: &'a Decision) -> Content<'a> {
    Box::new(move || {
        let usual = source.stat(&change.path)?.map(|stat| Mode::from_raw_mode(stat.st_mode));
        let content: Box<dyn Read> = match &decision.content {
            Some(content) => Box::new(Cursor::new(content)),
            None => Box::new(source.file(&change.path)?),
        };
        Ok((content, usual))
    })
}

/// The version of the source is the new common state: the target has it, alone or merged.
fn record(
    manifest: &mut Manifest,
    sides: Sides<'_>,
    texts: &mut Texts,
    change: &Change,
) -> Result<(), IsolateError> {
    let Sides { direction, source, target } = sides;
    let path = &change.path;
    let Some(node) = change.source.clone() else {
        manifest.entries.remove(path);
        return Ok(());
    };
    // The source may have changed since the decision. A merge needs the content that was taken.
    let text = match &node {
        Node::File { hash, .. } => {
            text_of(source, path)?.filter(|text| ContentHash::of(text) == *hash)
        }
        _ => None,
    };
    let text = text.map(|text| texts.keep(&text)).transpose()?.flatten();

    // With the stamp of a merged target, the next comparison would take it for the common state.
    let written = node::read_at(target, path).on("read", path)?;
    let of_target = written.filter(|(written, _)| *written == node).map(|(_, stamp)| stamp);
    let of_source = change.source_stamp;
    let (base, copy) = match direction {
        Direction::Apply => (of_target, of_source),
        Direction::Refresh => (of_source, of_target),
    };
    manifest.entries.insert(path.clone(), Common { node, base, copy, text });
    Ok(())
}

/// Takes back what an interrupted command wrote. Returns whether there was one.
pub(crate) fn recover(
    paths: &CopyPaths,
    direction: Direction,
    target: &Tree,
    notes: &mut Notes,
) -> Result<bool, IsolateError> {
    let journal = unfinished(paths, direction);
    // Without a plan nothing was written. The directory may have some of the old contents.
    if !has_plan(&journal) {
        remove_directory(&journal)?;
        return Ok(false);
    }

    roll_back(paths, direction, target, notes)?;
    Ok(true)
}

/// Whether a command was interrupted, so that [`recover`] writes files of the workspace or of the copy.
pub(crate) fn is_interrupted(paths: &CopyPaths) -> bool {
    [Direction::Apply, Direction::Refresh].iter().any(|it| has_plan(&unfinished(paths, *it)))
}

/// Takes back the changes that were written to the workspace last.
pub(crate) fn undo(paths: &CopyPaths, base: &Tree) -> Result<Vec<TakenBack>, IsolateError> {
    let (finished, journal) = (paths.applied(), unfinished(paths, Direction::Apply));
    if !has_plan(&finished) {
        return Err(IsolateError::NothingToUndo);
    }
    // From here on a crash is finished by the next command.
    rustix::fs::rename(&finished, &journal).on("begin", &finished)?;
    roll_back(paths, Direction::Apply, base, &mut Notes::default())
}

/// Restores the state before the changes, and the record of the files that were restored: a refresh may have recorded
/// newer states of others since.
fn roll_back(
    paths: &CopyPaths,
    direction: Direction,
    target: &Tree,
    notes: &mut Notes,
) -> Result<Vec<TakenBack>, IsolateError> {
    let journal = unfinished(paths, direction);
    let taken_back = take_back(&journal, target, notes)?;

    let mut saved = Manifest::read(&journal.join(RECORD))?;
    let mut manifest = Manifest::read(&paths.manifest())?;
    for (step, _) in taken_back.iter().filter(|(_, left)| left.is_none()) {
        match saved.entries.remove(&step.path) {
            Some(common) => drop(manifest.entries.insert(step.path.clone(), common)),
            None => drop(manifest.entries.remove(&step.path)),
        }
    }

    // The journal goes last. A crash before that repeats the roll back, which accepts files that are restored
    // already.
    manifest.write(&paths.manifest())?;
    remove_directory(&journal)?;
    Ok(taken_back)
}
