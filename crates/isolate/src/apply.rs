//! Writes changes to the workspace, all or none, so that they can be taken back.
//!
//! The order makes every crash harmless: the old contents and the plan are durable before the first name changes. While
//! the plan is in the directory of the unfinished, the next command takes back what was written. Its rename to the
//! directory of the finished is the moment at which the changes count.

use crate::changes::Change;
use crate::error::{IsolateError, OnFile as _};
use crate::manifest::{Common, CopyPaths, Manifest, Texts, private_file, write_whole};
use crate::node::{self, MAX_FILE_BYTES, Node, Stamp};
use crate::notes::Notes;
use crate::path_text;
use crate::plan::{Decision, text_of};
use crate::tree::{Place, Tree, Trees};
use quackd_protocol::isolate::ApplyOutcome;
use quackd_sandbox::StagedTag;
use rustix::fs::{FileType, Mode, Stat, fchmod};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

const PLAN: &str = "plan";
const MANIFEST: &str = "manifest";

/// Permission bits of files.
const ALL: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);

/// Permission bits that a new file of a session keeps: other users may not write it.
const NEW: Mode = ALL.difference(Mode::WGRP).difference(Mode::WOTH);

/// Permission bits of a file that the session does not have.
const USUAL: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::ROTH);

/// One change of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    #[serde(with = "path_text")]
    pub(crate) path: PathBuf,
    before: Option<Node>,
    after: Option<Node>,
    /// Name of the staged file next to the path.
    staged: String,
    /// Number of directories above the path that did not exist.
    n_made: usize,
}

impl Step {
    /// Removes the directories that were made for the path, if they are empty.
    fn remove_made(&self, base: &Tree) {
        let levels: Vec<&Path> = self.path.ancestors().skip(1).take(self.n_made).collect();
        base.remove_empty_above(&self.path, |above| levels.contains(&above));
    }
}

/// A step that is about to be written.
struct Pending<'a> {
    step: Step,
    change: &'a Change,
    decision: &'a Decision,
}

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
    let pending = decided.iter().filter(|(_, decision)| decision.writes());
    let pending: Result<Vec<Pending<'_>>, IsolateError> = pending
        .map(|(change, decision)| {
            let tag = StagedTag::random().on("name", &change.path)?;
            let step = Step {
                path: change.path.clone(),
                before: change.base.clone(),
                after: decision.after.clone(),
                staged: tag.file_name(),
                n_made: trees.base.n_missing_above(&change.path).on("read", &change.path)?,
            };
            Ok(Pending { step, change, decision })
        })
        .collect();
    let pending = pending?;
    let directory = begin(paths, trees.base, &pending)?;
    if let Err(error) = write(trees, &pending) {
        // If this fails too, the next command takes it back.
        roll_back(paths, trees.base, &directory, &mut Notes::default())?;
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
    rustix::fs::rename(&directory, &finished).on("finish", &finished)?;
    sync_directory(finished.parent().unwrap_or(&finished))
}

/// Keeps the old contents, the old record and the plan, durably.
fn begin(paths: &CopyPaths, base: &Tree, pending: &[Pending<'_>]) -> Result<PathBuf, IsolateError> {
    let directory = unfinished(paths);
    remove_directory(&directory)?;
    fs::create_dir(&directory).on("create", &directory)?;
    for (number, Pending { step, .. }) in pending.iter().enumerate() {
        let Some(Node::File { .. }) = &step.before else { continue };
        let old = directory.join(format!("{number}"));
        let mut source = base.file(&step.path).on("open", &step.path)?.take(MAX_FILE_BYTES + 1);
        let mut kept = private_file(&old).on("create", &old)?;
        io::copy(&mut source, &mut kept).and_then(|_| kept.sync_all()).on("write", &old)?;
        let kept = Tree::open(&directory).on("open", &directory)?;
        let kept = node::read_at(&kept, Path::new(&format!("{number}"))).on("read", &old)?;
        if !kept.is_some_and(|(kept, _)| has_same_content(&kept, step.before.as_ref())) {
            remove_directory(&directory)?;
            return Err(IsolateError::ChangedNow(step.path.clone()));
        }
    }
    let saved = directory.join(MANIFEST);
    fs::copy(paths.manifest(), &saved).on("write", &saved)?;
    File::open(&saved).and_then(|saved| saved.sync_all()).on("sync", &saved)?;
    let steps: Vec<&Step> = pending.iter().map(|pending| &pending.step).collect();
    let plan = serde_json::to_vec(&steps).map_err(io::Error::other).on("write", &directory)?;
    write_whole(&directory.join(PLAN), &plan)?;
    Ok(directory)
}

fn has_same_content(kept: &Node, expected: Option<&Node>) -> bool {
    match (kept, expected) {
        (Node::File { hash, .. }, Some(Node::File { hash: expected, .. })) => hash == expected,
        _ => false,
    }
}

/// Stages all files, checks that the workspace is as it was compared, and changes the names.
fn write(trees: Trees<'_>, pending: &[Pending<'_>]) -> Result<(), IsolateError> {
    let Trees { base, copy } = trees;
    for one in pending {
        if let Some(after) = &one.step.after {
            let place = base.place_made(&one.step.path).on("open", &one.step.path)?;
            stage(copy, &place, one, after)?;
        }
    }
    for one in pending {
        check(one, &place_of(base, one)?)?;
    }

    let mut parents = BTreeSet::new();
    for one in pending {
        // The directory is opened again: there may be more of them than a process may have open.
        let place = place_of(base, one)?;
        // Once more: the pass over the others took time.
        check(one, &place)?;
        let path = &one.step.path;
        match &one.step.after {
            Some(_) => place.take(&OsString::from(&one.step.staged)).on("replace", path)?,
            None => place.remove(&place.name).on("delete", path)?,
        }
        parents.insert(path.parent().unwrap_or_else(|| Path::new("")));
    }
    for above in parents {
        let directory = base.directory(above).on("open", above)?;
        rustix::fs::fsync(&directory).on("sync", above)?;
    }
    for one in pending.iter().filter(|one| one.step.after.is_none()) {
        // A directory that the session still has stays.
        let is_gone = |above: &Path| copy.stat(above).is_ok_and(|stat| stat.is_none());
        base.remove_empty_above(&one.step.path, is_gone);
    }
    Ok(())
}

fn place_of(base: &Tree, one: &Pending<'_>) -> Result<Place, IsolateError> {
    base.place(&one.step.path).on("open", &one.step.path)
}

fn check(one: &Pending<'_>, place: &Place) -> Result<(), IsolateError> {
    let now = place.stat().on("read", &one.step.path)?;
    if now.as_ref().map(Stamp::of) == one.change.base_stamp {
        return Ok(());
    }
    Err(IsolateError::ChangedNow(one.step.path.clone()))
}

/// Creates the new state next to the file.
fn stage(copy: &Tree, place: &Place, one: &Pending<'_>, after: &Node) -> Result<(), IsolateError> {
    let (path, name) = (&one.step.path, OsString::from(&one.step.staged));
    match after {
        Node::Link(target) => place.create_link(&name, target).on("create", path),
        Node::Other => Err(IsolateError::ChangedNow(path.clone())),
        Node::File { is_executable, .. } => {
            let usual = copy.stat(path).on("read", path)?;
            let usual = usual.map_or(USUAL, |stat| Mode::from_raw_mode(stat.st_mode) & NEW);
            let mode = mode(place, usual, *is_executable).on("read", path)?;
            let mut file = place.create(&name, Mode::RUSR | Mode::WUSR).on("create", path)?;
            match &one.decision.content {
                Some(content) => file.write_all(content).on("write", path)?,
                None => {
                    // The session may write into it all the time.
                    let source = copy.file(path).on("open", path)?.take(MAX_FILE_BYTES + 1);
                    io::copy(&mut { source }, &mut file).on("write", path)?;
                }
            }
            fchmod(&file, mode).on("write", path)?;
            file.sync_all().on("sync", path)?;
            let written = Place { directory: place.directory.try_clone().on("open", path)?, name };
            let written = node::read(&written).on("read", path)?;
            if written.is_some_and(|(written, _)| written == *after) {
                return Ok(());
            }
            // The session wrote into its copy since the comparison.
            Err(IsolateError::ChangedNow(path.clone()))
        }
    }
}

/// Permission bits of a new version: those of the file in the workspace, else `usual`, with the session's right to execute.
fn mode(place: &Place, usual: Mode, is_executable: bool) -> io::Result<Mode> {
    let is_file = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let old = place.stat()?.filter(is_file);
    let old = old.map_or(usual, |stat| Mode::from_raw_mode(stat.st_mode) & ALL);
    let mut mode = old.difference(Mode::XUSR | Mode::XGRP | Mode::XOTH);
    if is_executable {
        // Users who may read it may run it.
        mode |= Mode::XUSR;
        for (read, run) in [(Mode::RGRP, Mode::XGRP), (Mode::ROTH, Mode::XOTH)] {
            mode.set(run, old.contains(read));
        }
    }
    Ok(mode | Mode::RUSR | Mode::WUSR)
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
    let directory = unfinished(paths);
    if !directory.join(PLAN).exists() {
        remove_directory(&directory)?;
        return Ok(false);
    }
    roll_back(paths, base, &directory, notes)?;
    Ok(true)
}

/// A file of the workspace that was taken back, or the reason why it was left.
pub(crate) type TakenBack = (Step, Option<&'static str>);

/// Takes back the changes that were written last.
pub(crate) fn undo(paths: &CopyPaths, base: &Tree) -> Result<Vec<TakenBack>, IsolateError> {
    let (finished, directory) = (paths.applied(), unfinished(paths));
    if !finished.join(PLAN).exists() {
        return Err(IsolateError::NothingToUndo);
    }
    // From here on a crash is finished by the next command.
    rustix::fs::rename(&finished, &directory).on("begin", &finished)?;
    roll_back(paths, base, &directory, &mut Notes::default())
}

/// Restores the state before the steps of a plan. Files that another program changed since stay.
fn roll_back(
    paths: &CopyPaths,
    base: &Tree,
    directory: &Path,
    notes: &mut Notes,
) -> Result<Vec<TakenBack>, IsolateError> {
    let plan = fs::read(directory.join(PLAN)).on("read", directory)?;
    let steps: Vec<Step> =
        serde_json::from_slice(&plan).map_err(|error| IsolateError::Damaged(error.to_string()))?;
    let kept = Tree::open(directory).on("open", directory)?;
    let mut taken_back = Vec::new();
    for (number, step) in steps.into_iter().enumerate() {
        let left = restore(base, &kept, number, &step)?;
        if let Some(why) = left {
            notes.add(&step.path, why);
        }
        taken_back.push((step, left));
    }
    let saved = directory.join(MANIFEST);
    let manifest = fs::read(&saved).on("read", &saved)?;
    write_whole(&paths.manifest(), &manifest)?;
    remove_directory(directory)?;
    Ok(taken_back)
}

fn restore(
    base: &Tree,
    kept: &Tree,
    number: usize,
    step: &Step,
) -> Result<Option<&'static str>, IsolateError> {
    const CHANGED: &str = "changed since it was applied and is left";
    let path = &step.path;
    let staged = OsString::from(&step.staged);
    if let Ok(place) = base.place(path) {
        place.remove(&staged).on("remove", path)?;
    }
    let now = node::read_at(base, path).on("read", path)?.map(|(node, _)| node);
    if now == step.before {
        step.remove_made(base);
        return Ok(None);
    }
    if now != step.after {
        return Ok(Some(CHANGED));
    }
    match &step.before {
        None => {
            let place = base.place(path).on("open", path)?;
            place.remove(&place.name).on("delete", path)?;
            place.sync().on("sync", path)?;
            step.remove_made(base);
        }
        Some(Node::Link(target)) => {
            let place = base.place_made(path).on("open", path)?;
            place.create_link(&staged, target).on("create", path)?;
            place.take(&staged).on("replace", path)?;
            place.sync().on("sync", path)?;
        }
        Some(Node::File { is_executable, .. }) => {
            let place = base.place_made(path).on("open", path)?;
            let mode = mode(&place, USUAL, *is_executable).on("read", path)?;
            let mut file = place.create(&staged, Mode::RUSR | Mode::WUSR).on("create", path)?;
            let mut source = kept.file(Path::new(&format!("{number}"))).on("open", path)?;
            io::copy(&mut source, &mut file).on("write", path)?;
            fchmod(&file, mode).on("write", path)?;
            file.sync_all().on("sync", path)?;
            place.take(&staged).on("replace", path)?;
            place.sync().on("sync", path)?;
        }
        Some(Node::Other) => return Ok(Some("is of a kind that cannot be restored")),
    }
    Ok(None)
}

fn remove_directory(path: &Path) -> Result<(), IsolateError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).on("remove", path),
        _ => Ok(()),
    }
}

fn sync_directory(path: &Path) -> Result<(), IsolateError> {
    File::open(path).and_then(|directory| directory.sync_all()).on("sync", path)
}
