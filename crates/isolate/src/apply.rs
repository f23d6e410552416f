//! Writes changes of the copy to the workspace so that they can be taken back.
//!
//! While the journal is in the directory of the unfinished, the next command takes back what was written. Its rename to the
//! directory of the finished is the moment at which the changes count.

use crate::changes::Change;
use crate::error::{IsolateError, OnFile as _};
use crate::journal::{
    Content, Pending, RECORD, TakenBack, begin, has_plan, remove_directory, take_back, write,
};
use crate::manifest::{Common, CopyPaths, Manifest, Texts, write_whole};
use crate::node::{self, Node};
use crate::notes::Notes;
use crate::plan::{Decision, text_of};
use crate::tree::{Tree, Trees};
use quackd_protocol::isolate::ApplyOutcome;
use rustix::fs::Mode;
use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

/// Directory of changes that are being written.
fn unfinished(paths: &CopyPaths) -> PathBuf {
    paths.applied().with_extension("new")
}

/// Writes all decisions that write, and records the new common state.
pub(crate) fn apply(
    paths: &CopyPaths,
    manifest: &mut Manifest,
    trees: Trees<'_>,
    texts: &mut Texts,
    decided: &[(Change, Decision)],
) -> Result<(), IsolateError> {
    let Trees { base, copy } = trees;
    let pending = decided.iter().filter(|(_, decision)| decision.writes());
    let pending: Result<Vec<Pending<'_>>, IsolateError> = pending
        .map(|(change, decision)| {
            let before = (change.base.clone(), change.base_stamp);
            let after = (decision.after.clone(), content(copy, change, decision));
            Pending::new(base, &change.path, before, after)
        })
        .collect();
    let pending = pending?;
    let journal = unfinished(paths);
    begin(&journal, base, &pending, Some(&paths.manifest()))?;
    // A directory that the session still has stays.
    let is_gone = |above: &Path| copy.stat(above).is_ok_and(|stat| stat.is_none());
    if let Err(error) = write(base, &pending, is_gone) {
        // If this fails too, the next command takes it back.
        roll_back(paths, base, &mut Notes::default())?;
        return Err(error);
    }
    for (change, decision) in decided {
        if decision.writes() || decision.outcome == ApplyOutcome::Same {
            record(manifest, trees, texts, change)?;
        }
    }
    texts.sync()?;
    manifest.write(&paths.manifest())?;
    let finished = paths.applied();
    remove_directory(&finished)?;
    rustix::fs::rename(&journal, &finished).on("finish", &finished)?;
    let above = finished.parent().unwrap_or(&finished);
    File::open(above).and_then(|above| above.sync_all()).on("sync", above)
}

/// Returns the content of a decision: the merged one, else that of the copy.
fn content<'a>(copy: &'a Tree, change: &'a Change, decision: &'a Decision) -> Content<'a> {
    Box::new(move || {
        let usual = copy.stat(&change.path)?.map(|stat| Mode::from_raw_mode(stat.st_mode));
        let source: Box<dyn Read> = match &decision.content {
            Some(content) => Box::new(Cursor::new(content)),
            None => Box::new(copy.file(&change.path)?),
        };
        Ok((source, usual))
    })
}

/// The session's version is the new common state: the workspace has it, alone or merged.
fn record(
    manifest: &mut Manifest,
    trees: Trees<'_>,
    texts: &mut Texts,
    change: &Change,
) -> Result<(), IsolateError> {
    let Trees { base, copy } = trees;
    let path = &change.path;
    let Some(session) = change.session.clone() else {
        manifest.entries.remove(path);
        return Ok(());
    };
    let in_base = node::read_at(base, path).on("read", path)?;
    let is_same = in_base.as_ref().is_some_and(|(node, _)| *node == session);
    let text = match &session {
        Node::File { .. } => text_of(copy, path)?,
        _ => None,
    };
    let common = Common {
        base: in_base.filter(|_| is_same).map(|(_, stamp)| stamp),
        copy: change.session_stamp,
        text: text.map(|text| texts.keep(&text)).transpose()?.flatten(),
        node: session,
    };
    manifest.entries.insert(path.clone(), common);
    Ok(())
}

/// Takes back what an interrupted command wrote. Returns whether there was one.
pub(crate) fn recover(
    paths: &CopyPaths,
    base: &Tree,
    notes: &mut Notes,
) -> Result<bool, IsolateError> {
    let journal = unfinished(paths);
    if !has_plan(&journal) {
        remove_directory(&journal)?;
        return Ok(false);
    }
    roll_back(paths, base, notes)?;
    Ok(true)
}

/// Takes back the changes that were written last.
pub(crate) fn undo(paths: &CopyPaths, base: &Tree) -> Result<Vec<TakenBack>, IsolateError> {
    let (finished, journal) = (paths.applied(), unfinished(paths));
    if !has_plan(&finished) {
        return Err(IsolateError::NothingToUndo);
    }
    // From here on a crash is finished by the next command.
    rustix::fs::rename(&finished, &journal).on("begin", &finished)?;
    roll_back(paths, base, &mut Notes::default())
}

/// Restores the state before the changes, and the record of it.
fn roll_back(
    paths: &CopyPaths,
    base: &Tree,
    notes: &mut Notes,
) -> Result<Vec<TakenBack>, IsolateError> {
    let journal = unfinished(paths);
    let taken_back = take_back(&journal, base, notes)?;
    let saved = journal.join(RECORD);
    let manifest = fs::read(&saved).on("read", &saved)?;
    write_whole(&paths.manifest(), &manifest)?;
    remove_directory(&journal)?;
    Ok(taken_back)
}
