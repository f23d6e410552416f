//! Writes many files of a tree, all or none.
//!
//! The order makes every crash harmless: the old contents and the plan are durable before the first name changes. While
//! the plan is in the journal's directory, the next command takes back what was written. Its removal or rename is the
//! moment at which the changes count.

use crate::error::{IsolateError, OnFile as _};
use crate::manifest::{private_file, write_whole};
use crate::node::{self, MAX_FILE_BYTES, Node, Stamp};
use crate::notes::Notes;
use crate::path_text;
use crate::tree::{Place, Tree, is_absent};
use quackd_protocol::isolate::FileChange;
use quackd_sandbox::StagedTag;
use rustix::fs::{FileType, Mode, Stat, fchmod};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

const PLAN: &str = "plan";

/// Copy of the record that belongs to the state before the changes.
pub(crate) const RECORD: &str = "manifest";

/// Permission bits of files.
const ALL: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);

/// Permission bits that a new file keeps: other users may not write it.
const NEW: Mode = ALL.difference(Mode::WGRP).difference(Mode::WOTH);

/// Permission bits of a new file whose source has none.
const USUAL: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::ROTH);

/// One change of a tree.
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
    /// Returns what taking the step back does to the file.
    pub(crate) fn change_back(&self) -> FileChange {
        match (&self.before, &self.after) {
            (None, _) => FileChange::Deleted,
            (_, None) => FileChange::Added,
            (Some(_), Some(_)) => FileChange::Changed,
        }
    }

    /// Removes the directories that were made for the path, if they are empty.
    fn remove_made(&self, tree: &Tree) {
        let levels: Vec<&Path> = self.path.ancestors().skip(1).take(self.n_made).collect();
        tree.remove_empty_above(&self.path, |above| levels.contains(&above));
    }
}

/// A change that is about to be written.
pub(crate) struct Pending<'a> {
    step: Step,
    /// Stamp of the file when the change was decided.
    stamp: Option<Stamp>,
    /// New content of a file. It is read once, and may differ from the expected one: the result is checked.
    content: Content<'a>,
}

/// New content of a file, with the permission bits that a new file gets.
pub(crate) type Content<'a> = Box<dyn Fn() -> io::Result<(Box<dyn Read + 'a>, Option<Mode>)> + 'a>;

/// Content of a change that writes no file.
pub(crate) fn no_content<'a>() -> Content<'a> {
    Box::new(|| Ok((Box::new(io::empty()), None)))
}

impl<'a> Pending<'a> {
    /// Prepares a change of `path` from the state `before` to `after`.
    pub(crate) fn new(
        tree: &Tree,
        path: &Path,
        before: Option<Node>,
        stamp: Option<Stamp>,
        after: Option<Node>,
        content: Content<'a>,
    ) -> Result<Self, IsolateError> {
        let staged = StagedTag::random().on("name", path)?.file_name();
        let n_made = tree.n_missing_above(path).on("read", path)?;
        let step = Step { path: path.to_owned(), before, after, staged, n_made };
        Ok(Self { step, stamp, content })
    }
}

/// Writes the changes. After an error, also if the process ends, [`take_back`] restores the earlier state.
///
/// A directory that has lost its last file is removed if `may_go` accepts it.
pub(crate) fn write(
    tree: &Tree,
    pending: &[Pending<'_>],
    may_go: impl Fn(&Path) -> bool,
) -> Result<(), IsolateError> {
    // Everything is staged and checked before the first name changes. Until then an error leaves all files as they
    // were.
    for one in pending {
        if let Some(after) = &one.step.after {
            let place = tree.place_made(&one.step.path).on("open", &one.step.path)?;
            stage(&place, one, after)?;
        }
    }
    for one in pending {
        check(one, &place_of(tree, one)?)?;
    }

    let mut parents = BTreeSet::new();
    for one in pending {
        // The directory is opened again: there may be more of them than a process may have open.
        let place = place_of(tree, one)?;
        // Once more: the pass over the others took time.
        check(one, &place)?;
        let path = &one.step.path;
        match &one.step.after {
            Some(_) => place.take(&OsString::from(&one.step.staged)).on("replace", path)?,
            None => place.remove(&place.name).on("delete", path)?,
        }
        parents.insert(path.parent().unwrap_or_else(|| Path::new("")));
    }

    // The caller removes the plan next, so the renames must be durable.
    for above in parents {
        let directory = tree.directory(above).on("open", above)?;
        rustix::fs::fsync(&directory).on("sync", above)?;
    }

    for one in pending.iter().filter(|one| one.step.after.is_none()) {
        tree.remove_empty_above(&one.step.path, &may_go);
    }
    Ok(())
}

/// Keeps the old contents, the file `record` and the plan in the new directory `journal`, durably.
pub(crate) fn begin(
    journal: &Path,
    tree: &Tree,
    pending: &[Pending<'_>],
    record: Option<&Path>,
) -> Result<(), IsolateError> {
    remove_directory(journal)?;
    fs::create_dir(journal).on("create", journal)?;
    let above = journal.parent().unwrap_or(journal);
    File::open(above).and_then(|above| above.sync_all()).on("sync", above)?;

    for (number, Pending { step, .. }) in pending.iter().enumerate() {
        let Some(Node::File { .. }) = &step.before else { continue };
        let old = journal.join(format!("{number}"));
        let mut source = tree.file(&step.path).on("open", &step.path)?.take(MAX_FILE_BYTES + 1);
        let mut kept = private_file(&old).on("create", &old)?;
        io::copy(&mut source, &mut kept).and_then(|_| kept.sync_all()).on("write", &old)?;
        let kept = Tree::open(journal).on("open", journal)?;
        let kept = node::read_at(&kept, Path::new(&format!("{number}"))).on("read", &old)?;
        // The plan must be able to restore exactly the content that the change was decided for.
        if !kept.is_some_and(|(kept, _)| has_same_content(&kept, step.before.as_ref())) {
            remove_directory(journal)?;
            return Err(IsolateError::ChangedNow(step.path.clone()));
        }
    }

    if let Some(record) = record {
        let saved = journal.join(RECORD);
        fs::copy(record, &saved).on("write", &saved)?;
        File::open(&saved).and_then(|saved| saved.sync_all()).on("sync", &saved)?;
    }

    // The plan is written last: its existence means that everything needed to take the changes back is durable.
    let steps: Vec<&Step> = pending.iter().map(|pending| &pending.step).collect();
    let plan = serde_json::to_vec(&steps).map_err(io::Error::other).on("write", journal)?;
    write_whole(&journal.join(PLAN), &plan)
}

/// Whether the directory has a whole plan. Otherwise nothing was written.
pub(crate) fn has_plan(journal: &Path) -> bool {
    journal.join(PLAN).exists()
}

fn has_same_content(kept: &Node, expected: Option<&Node>) -> bool {
    match (kept, expected) {
        (Node::File { hash, .. }, Some(Node::File { hash: expected, .. })) => hash == expected,
        _ => false,
    }
}

fn place_of(tree: &Tree, one: &Pending<'_>) -> Result<Place, IsolateError> {
    tree.place(&one.step.path).on("open", &one.step.path)
}

fn check(one: &Pending<'_>, place: &Place) -> Result<(), IsolateError> {
    let now = place.stat().on("read", &one.step.path)?;
    if now.as_ref().map(Stamp::of) == one.stamp {
        return Ok(());
    }
    Err(IsolateError::ChangedNow(one.step.path.clone()))
}

/// Creates the new state next to the file.
fn stage(place: &Place, one: &Pending<'_>, after: &Node) -> Result<(), IsolateError> {
    let (path, name) = (&one.step.path, OsString::from(&one.step.staged));
    match after {
        Node::Link(target) => place.create_link(&name, target).on("create", path),
        Node::Other => Err(IsolateError::ChangedNow(path.clone())),
        Node::File { is_executable, .. } => {
            let (source, usual) = (one.content)().on("open", path)?;
            let mode = mode(place, usual.map_or(USUAL, |usual| usual & NEW), *is_executable);
            let mode = mode.on("read", path)?;
            // The content may be private, so other users get their rights only at the end.
            let mut file = place.create(&name, Mode::RUSR | Mode::WUSR).on("create", path)?;
            // A session may write into the source all the time.
            io::copy(&mut source.take(MAX_FILE_BYTES + 1), &mut file).on("write", path)?;
            fchmod(&file, mode).on("write", path)?;
            file.sync_all().on("sync", path)?;

            // Read back, because the source may have changed since the decision.
            let written = Place { directory: place.directory.try_clone().on("open", path)?, name };
            let written = node::read(&written).on("read", path)?;
            if written.is_some_and(|(written, _)| written == *after) {
                return Ok(());
            }
            Err(IsolateError::ChangedNow(path.clone()))
        }
    }
}

/// Permission bits of a new version: those of the file in its place, else `usual`, with the right to execute of the version.
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

/// A file that was taken back, or the reason why it was left.
pub(crate) type TakenBack = (Step, Option<&'static str>);

/// Restores the state before the steps of a plan. Files that another program changed since stay. The caller removes the
/// directory.
pub(crate) fn take_back(
    journal: &Path,
    tree: &Tree,
    notes: &mut Notes,
) -> Result<Vec<TakenBack>, IsolateError> {
    let plan = fs::read(journal.join(PLAN)).on("read", journal)?;
    let steps: Vec<Step> =
        serde_json::from_slice(&plan).map_err(|error| IsolateError::Damaged(error.to_string()))?;
    let kept = Tree::open(journal).on("open", journal)?;

    let mut taken_back = Vec::new();
    for (number, step) in steps.into_iter().enumerate() {
        let left = restore(tree, &kept, number, &step)?;
        if let Some(why) = left {
            notes.add(&step.path, why);
        }
        taken_back.push((step, left));
    }
    Ok(taken_back)
}

fn restore(
    tree: &Tree,
    kept: &Tree,
    number: usize,
    step: &Step,
) -> Result<Option<&'static str>, IsolateError> {
    const CHANGED: &str = "changed since it was written and is left";
    let path = &step.path;
    let staged = OsString::from(&step.staged);
    // An interrupted command may have left its staged file.
    if let Ok(place) = tree.place(path) {
        place.remove(&staged).on("remove", path)?;
    }

    let now = node::read_at(tree, path).on("read", path)?.map(|(node, _)| node);
    // Either not written yet, or restored by an earlier attempt.
    if now == step.before {
        step.remove_made(tree);
        return Ok(None);
    }

    if now != step.after {
        return Ok(Some(CHANGED));
    }

    match &step.before {
        None => {
            let place = tree.place(path).on("open", path)?;
            place.remove(&place.name).on("delete", path)?;
            place.sync().on("sync", path)?;
            step.remove_made(tree);
        }
        // A name on the way is no longer a directory, so another program changed it.
        Some(_) if tree.place_made(path).is_err_and(|error| is_absent(&error)) => {
            return Ok(Some(CHANGED));
        }
        Some(Node::Link(target)) => {
            let place = tree.place_made(path).on("open", path)?;
            place.create_link(&staged, target).on("create", path)?;
            place.take(&staged).on("replace", path)?;
            place.sync().on("sync", path)?;
        }
        Some(Node::File { is_executable, .. }) => {
            let place = tree.place_made(path).on("open", path)?;
            let mode = mode(&place, USUAL, *is_executable).on("read", path)?;
            // Staged and renamed like the change itself, so that a crash leaves one of the two versions.
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

/// Removes a journal. The plan goes first: with it, and without some of the contents, a later command would fail.
pub(crate) fn remove_directory(path: &Path) -> Result<(), IsolateError> {
    match fs::remove_file(path.join(PLAN)) {
        Ok(()) => File::open(path).and_then(|path| path.sync_all()).on("sync", path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).on("remove", path),
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).on("remove", path),
        _ => Ok(()),
    }
}
