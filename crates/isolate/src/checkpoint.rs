//! Records states of a session's files, and writes an earlier state.

use crate::changes::has_below;
use crate::error::{IsolateError, OnFile as _};
use crate::ignored::IgnoreRules;
use crate::journal::{self, Content, Pending};
use crate::manifest::{CopyPaths, Manifest, identity};
use crate::node::{self, Node, Stamp};
use crate::notes::Notes;
use crate::plan::protection;
use crate::recorded::{Changes, Difference, Entries, Recorded, Span, StateFiles, TEXTS};
use crate::store::Store;
use crate::tree::{Listed, Place, Tree};
use crate::walk::{Visit, walk};
use crate::{Lock, report};
use jiff::Timestamp;
use quackd_protocol::foreign_text::message_line;
use quackd_protocol::isolate::{
    ApplyOutcome, Checkpoint, CheckpointFile, IsolatedChoice, IsolatedFile, IsolatedReport,
    MAX_CHECKPOINT_CALL, MAX_CHECKPOINT_CALLS, MAX_CHECKPOINT_FILES, MAX_CHECKPOINTS,
};
use rustix::fs::{FileType, Mode};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// Maximum size of all contents that are kept, in bytes.
const MAX_KEPT: u64 = 1024 * 1024 * 1024;

/// Maximum size of an ignored file whose states are recorded, in bytes, as in copies.
const MAX_IGNORED_BYTES: u64 = 1024 * 1024;

/// The files whose states are recorded.
#[derive(Debug, Clone, Default)]
pub struct RecordedFiles {
    /// Directory of the files.
    pub tree: PathBuf,
    /// The workspace, whose path the files have for the session.
    pub workspace: PathBuf,
    /// Directory of the private copy, if the files are one.
    pub copy: Option<PathBuf>,
    /// Absolute paths that are not recorded.
    pub hidden: Vec<PathBuf>,
    /// Most files.
    pub max_files: u64,
    /// Text of the user's own file of ignored names.
    pub user_excludes: Option<String>,
    /// Relative paths that git tracks. A directory with one of them is recorded although git ignores its name.
    pub tracked: BTreeSet<PathBuf>,
}

/// The recorded states of a session's files, locked for this process.
#[derive(Debug)]
pub struct Checkpoints {
    files: RecordedFiles,
    states: StateFiles,
    tree: Tree,
    /// Device and inode of the files' directory.
    directory: (u64, u64),
    outputs: Vec<PathBuf>,
    /// Number and entries of the newest state. `None` before the first one.
    newest: Option<(u64, Entries)>,
    notes: Notes,
    _lock: Lock,
}

impl Checkpoints {
    /// Opens the states in `directory`, which exists. Takes back a restore that was interrupted.
    ///
    /// # Errors
    /// [`IsolateError::Busy`], [`IsolateError::DamagedStates`], [`IsolateError::Damaged`], [`IsolateError::NoCopy`] or
    /// [`IsolateError::Io`].
    pub fn open(files: RecordedFiles, directory: &Path) -> Result<Self, IsolateError> {
        let copy = files.copy.as_deref().map(CopyPaths::of);
        let states = StateFiles::new(directory, copy.as_ref().map(CopyPaths::texts));
        let lock = Lock::take(&states.lock())?;
        let tree = Tree::open(&files.tree).on("open", &files.tree)?;

        let mut notes = Notes::default();
        let journal = states.journal();
        let directory = File::open(&files.tree).on("open", &files.tree)?;
        let directory = identity(&directory).on("read", &files.tree)?;
        let mut newest = states.read_current(directory)?;
        if newest.is_none() {
            // The states of another directory that had the path before must not be restored into this one.
            states.remove_all()?;
        } else if journal::has_plan(&journal) {
            journal::take_back(&journal, &tree, &mut notes)?;
            notes.line("an earlier restore was interrupted; what it had written was taken back");
        }
        journal::remove_directory(&journal)?;

        let mut outputs = Vec::new();
        if let Some(copy) = copy {
            let manifest = Manifest::read(&copy.manifest())?;
            if newest.is_none() {
                // The copy as it was made is the first state, and its record has it already.
                let entries = first_entries(&manifest);
                states.write_current(directory, 0, &entries)?;
                newest = Some((0, entries));
            }
            outputs = manifest.copied.outputs;
        }
        if let Some((number, _)) = &newest {
            states.remove_from(*number + 1)?;
        }
        Ok(Self { files, states, tree, directory, outputs, newest, notes, _lock: lock })
    }

    /// Whether the directory has no state yet.
    #[must_use]
    pub fn is_empty(directory: &Path) -> bool {
        !StateFiles::new(directory, None).has_current()
    }

    /// Whether a restore was interrupted, so that [`Self::open`] writes files.
    #[must_use]
    pub fn is_interrupted(directory: &Path) -> bool {
        journal::has_plan(&StateFiles::new(directory, None).journal())
    }

    /// Whether there is no state yet. A copy always has one.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.newest.is_none()
    }

    /// Returns the states, the oldest first.
    ///
    /// # Errors
    /// [`IsolateError::DamagedStates`] or [`IsolateError::Io`].
    pub fn list(self) -> Result<Vec<Checkpoint>, IsolateError> {
        let Some((newest, _)) = self.newest else { return Ok(Vec::new()) };
        let numbers = self.states.numbers("changes")?;
        // Of the oldest state only the files are known.
        let oldest = numbers.first().map_or(newest, |first| first.saturating_sub(1));
        let mut listed = vec![Checkpoint { number: oldest, ..Checkpoint::default() }];
        for number in numbers {
            listed.push(self.states.read_changes(number)?.checkpoint);
        }
        Ok(listed)
    }

    /// Records the state. `None` if nothing differs from the newest one.
    ///
    /// # Errors
    /// [`IsolateError::TooManyFiles`] or [`IsolateError::Io`].
    pub fn take(
        &mut self,
        calls: &[String],
        while_running: bool,
    ) -> Result<Option<Checkpoint>, IsolateError> {
        let known = self.newest.take();
        let is_first = known.is_none();
        let (last, mut entries) = known.unwrap_or_default();
        let number = if is_first { 1 } else { last + 1 };
        let left = MAX_KEPT.saturating_sub(self.states.packed_bytes()?);
        let mut scan = Scan {
            files: &self.files,
            outputs: &self.outputs,
            known: &entries,
            seen: BTreeSet::new(),
            n_files: 0,
            differences: Vec::new(),
            only_stamps: Vec::new(),
            store: Store::new(&self.states, number, &entries, left),
            notes: &mut self.notes,
        };
        walk(&self.tree, self.files.user_excludes.as_deref(), &mut scan)?;
        scan.add_deleted();
        let Scan { differences, only_stamps, store, .. } = scan;
        let is_full = store.finish()?;

        let mut checkpoint = None;
        if !is_first && !differences.is_empty() {
            let taken = describe(number, &differences, calls, while_running);
            self.states.write_changes(&Changes {
                checkpoint: taken.clone(),
                differences: differences.clone(),
            })?;
            checkpoint = Some(taken);
        }
        let has_new = !differences.is_empty() || !only_stamps.is_empty();
        let number = if is_first || checkpoint.is_some() { number } else { last };
        for Difference { path, after, .. } in differences {
            match after {
                Some(recorded) => drop(entries.insert(path, recorded)),
                None => drop(entries.remove(&path)),
            }
        }
        entries.extend(only_stamps);
        if is_first || has_new {
            self.states.write_current(self.directory, number, &entries)?;
        }
        let max_kept = if is_full { MAX_KEPT - MAX_KEPT / 4 } else { MAX_KEPT };
        self.states.prune(&entries, (MAX_CHECKPOINTS, max_kept))?;
        self.newest = Some((number, entries));
        Ok(checkpoint)
    }

    /// Records the state, then writes the chosen files of an earlier one, all or none.
    ///
    /// # Errors
    /// [`IsolateError::NoState`], [`IsolateError::ChangedNow`], or as [`Self::take`]. The files are then as before.
    pub fn restore(
        mut self,
        number: u64,
        choice: &IsolatedChoice,
        dry_run: bool,
    ) -> Result<IsolatedReport, IsolateError> {
        self.take(&[format!("before the restore of {number}")], false)?;
        let goals = self.goals(number)?;
        let is_chosen = |path: &Path| {
            choice.paths.is_empty() || choice.paths.iter().any(|chosen| path.starts_with(chosen))
        };
        let goals = goals.into_iter().filter(|one| is_chosen(&one.path));
        let mut decided: Vec<(Difference, Option<Left>)> = goals
            .map(|one| {
                let left = self.obstacle(&one, choice);
                (one, left)
            })
            .collect();

        let writes: Vec<&Difference> =
            decided.iter().filter(|(_, left)| left.is_none()).map(|(one, _)| one).collect();
        let has_any = !writes.is_empty();
        if has_any && !dry_run {
            // A file may be in the place of a directory, so what must go goes first.
            let (gone, others): (Vec<_>, Vec<_>) =
                writes.into_iter().partition(|one| one.after.is_none());
            let is_crossing = others.iter().any(|new| {
                gone.iter()
                    .any(|old| new.path.starts_with(&old.path) || old.path.starts_with(&new.path))
            });
            let rounds = match is_crossing {
                true => vec![gone, others],
                false => vec![[gone, others].concat()],
            };
            for round in rounds {
                self.write(&round)?;
            }
            self.take(&[format!("restore of {number}")], false)?;
        }
        decided.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
        let files = decided.iter().map(|(one, left)| IsolatedFile {
            path: one.path.to_string_lossy().into_owned(),
            change: one.kind(),
            outcome: left.as_ref().map_or(ApplyOutcome::Taken, |left| left.outcome),
            reason: left.as_ref().map(|left| left.reason.clone()),
            diff: None,
        });
        let written = has_any && !dry_run;
        Ok(report::restored(files, decided.len(), written, self.notes))
    }

    /// Returns the differences from the newest state to an earlier one.
    fn goals(&self, number: u64) -> Result<Vec<Difference>, IsolateError> {
        let Some((newest, entries)) = &self.newest else {
            return Err(IsolateError::NoState(number));
        };
        let mut goals = BTreeMap::new();
        let later = self.states.numbers("changes")?;
        let oldest = later.first().map_or(*newest, |first| first.saturating_sub(1));
        if number < oldest || *newest < number {
            return Err(IsolateError::NoState(number));
        }
        for later in later.into_iter().rev().take_while(|later| number < *later) {
            for Difference { path, before, .. } in self.states.read_changes(later)?.differences {
                goals.insert(path, before);
            }
        }
        let difference = |(path, after): (PathBuf, Option<Recorded>)| {
            let before = entries.get(&path).cloned();
            let is_same =
                before.as_ref().map(|one| &one.node) == after.as_ref().map(|one| &one.node);
            (!is_same).then_some(Difference { path, before, after })
        };
        Ok(goals.into_iter().filter_map(difference).collect())
    }

    /// Returns the reason why a file is not restored.
    fn obstacle(&self, goal: &Difference, choice: &IsolatedChoice) -> Option<Left> {
        let after = goal.after.as_ref().map(|after| &after.node);
        if self.files.copy.is_none()
            && let Some(reason) = protection(&goal.path, after, choice)
        {
            return Some(Left { outcome: ApplyOutcome::Protected, reason });
        }
        let left =
            |reason: &str| Some(Left { outcome: ApplyOutcome::Left, reason: reason.to_owned() });
        let before = goal.before.as_ref().map(|before| &before.node);
        if [before, after].into_iter().flatten().any(|node| *node == Node::Other) {
            return left("it is a special file or larger than 1 GiB in one of the states");
        }
        match &goal.after {
            Some(after) if self.content(&goal.path, after).is_none() => {
                left("its content was not kept")
            }
            _ => None,
        }
    }

    /// Returns where a recorded content is. `None` if nowhere.
    fn content<'a>(&'a self, path: &'a Path, recorded: &Recorded) -> Option<Content<'a>> {
        let Node::File { hash, .. } = &recorded.node else {
            return Some(journal::no_content());
        };
        if let Some(span) = recorded.content {
            return Some(Box::new(move || Ok((self.states.content(span)?, None))));
        }
        // The workspace, or the file itself, may have the content.
        let trees = [self.files.tree.clone(), self.files.workspace.clone()];
        let tree = trees.into_iter().find_map(|tree| {
            let tree = Tree::open(&tree).ok()?;
            let found = node::read_at(&tree, path).ok()??;
            matches!(found.0, Node::File { hash: found, .. } if found == *hash).then_some(tree)
        })?;
        Some(Box::new(move || {
            let mode = tree.stat(path)?.map(|stat| Mode::from_raw_mode(stat.st_mode));
            Ok((Box::new(tree.file(path)?), mode))
        }))
    }

    fn write(&self, goals: &[&Difference]) -> Result<(), IsolateError> {
        let mut pending = Vec::new();
        for Difference { path, before, after } in goals.iter().copied() {
            let mut stamp = before.as_ref().and_then(|before| before.stamp);
            if before.is_some() && stamp.is_none() {
                stamp = self.tree.stat(path).on("read", path)?.map(|stat| Stamp::of(&stat));
            }
            let content = match after {
                Some(after) => self
                    .content(path, after)
                    .ok_or_else(|| IsolateError::ChangedNow(path.clone()))?,
                None => journal::no_content(),
            };
            let before = (before.as_ref().map(|before| before.node.clone()), stamp);
            let after = (after.as_ref().map(|after| after.node.clone()), content);
            pending.push(Pending::new(&self.tree, path, before, after)?);
        }
        let journal = self.states.journal();
        journal::begin(&journal, &self.tree, &pending, None)?;
        if let Err(error) = journal::write(&self.tree, &pending, |_| true) {
            // If this fails too, the next command takes it back.
            journal::take_back(&journal, &self.tree, &mut Notes::default())?;
            journal::remove_directory(&journal)?;
            return Err(error);
        }
        journal::remove_directory(&journal)
    }
}

/// Reason why a file is not restored.
struct Left {
    outcome: ApplyOutcome,
    reason: String,
}

/// Returns the entries of a copy as it was made.
fn first_entries(manifest: &Manifest) -> Entries {
    let recorded = |common: &crate::manifest::Common| Recorded {
        node: common.node.clone(),
        stamp: common.copy,
        content: common.text.map(|text| Span { pack: TEXTS, at: text.at, len: text.len }),
    };
    manifest.entries.iter().map(|(path, common)| (path.clone(), recorded(common))).collect()
}

fn describe(
    number: u64,
    differences: &[Difference],
    calls: &[String],
    while_running: bool,
) -> Checkpoint {
    let file = |one: &Difference| CheckpointFile {
        path: one.path.to_string_lossy().into_owned(),
        change: one.kind(),
    };
    let call = |call: &String| message_line(call, MAX_CHECKPOINT_CALL);
    Checkpoint {
        number,
        at_ms: Timestamp::now().as_millisecond(),
        calls: calls.iter().take(MAX_CHECKPOINT_CALLS).map(call).collect(),
        files: differences.len() as u64,
        changes: differences.iter().take(MAX_CHECKPOINT_FILES).map(file).collect(),
        while_running,
    }
}

/// Finds the differences of the tree to the newest state, and keeps new contents.
struct Scan<'a> {
    files: &'a RecordedFiles,
    outputs: &'a [PathBuf],
    known: &'a Entries,
    seen: BTreeSet<PathBuf>,
    n_files: u64,
    differences: Vec<Difference>,
    /// Files with the same content and another stamp.
    only_stamps: Vec<(PathBuf, Recorded)>,
    store: Store<'a>,
    notes: &'a mut Notes,
}

impl Visit for Scan<'_> {
    fn enters(&mut self, at: &Path, rules: &IgnoreRules) -> bool {
        if self.is_hidden(at) || self.outputs.iter().any(|output| output == at) {
            return false;
        }
        !rules.ignore(at, true)
            || has_below(self.known, at)
            || self.files.tracked.range(at.to_owned()..).next().is_some_and(|it| it.starts_with(at))
    }

    fn node(
        &mut self,
        directory: BorrowedFd<'_>,
        entry: &Listed,
        at: PathBuf,
        rules: &IgnoreRules,
    ) -> Result<(), IsolateError> {
        if self.is_hidden(&at) {
            return Ok(());
        }
        self.n_files += 1;
        if self.files.max_files < self.n_files {
            return Err(IsolateError::TooManyFiles { max: self.files.max_files });
        }
        let known = self.known.get(&at);
        let stamp = Stamp::of(&entry.stat);
        if known.is_some_and(|known| known.stamp == Some(stamp)) {
            self.seen.insert(at);
            return Ok(());
        }
        let len = u64::try_from(entry.stat.st_size).unwrap_or(0);
        let is_tracked = known.is_some() || self.files.tracked.contains(&at);
        if MAX_IGNORED_BYTES < len && !is_tracked && rules.ignore(&at, false) {
            return Ok(());
        }
        self.record(directory, entry, at)
    }

    /// Leaves a directory out. Its files count as unchanged, not as deleted.
    fn unreadable(&mut self, at: &Path, why: &str) {
        self.notes.add(at, why);
        let below = self.known.keys().filter(|known| known.starts_with(at));
        self.seen.extend(below.cloned());
    }
}

impl Scan<'_> {
    fn is_hidden(&self, at: &Path) -> bool {
        self.files.hidden.iter().any(|hidden| *hidden == self.files.workspace.join(at))
    }

    fn record(
        &mut self,
        directory: BorrowedFd<'_>,
        entry: &Listed,
        at: PathBuf,
    ) -> Result<(), IsolateError> {
        let read = match entry.kind() {
            FileType::RegularFile => self.store.read(directory, entry),
            _ => {
                let owned = directory.try_clone_to_owned().on("open", &at)?;
                let place = Place { directory: owned, name: entry.name.clone() };
                node::read(&place).map(|found| {
                    found.map(|(node, stamp)| Recorded { node, stamp: Some(stamp), content: None })
                })
            }
        };
        let recorded = match read {
            Ok(recorded) => recorded,
            Err(error) => {
                self.notes.add(&at, &format!("cannot be read and is left out: {error}"));
                self.seen.insert(at);
                return Ok(());
            }
        };
        // It was removed since the listing, so it counts as deleted.
        let Some(recorded) = recorded else { return Ok(()) };
        self.seen.insert(at.clone());
        let before = self.known.get(&at);
        match before {
            Some(known) if known.node == recorded.node => {
                let content = known.content.or(recorded.content);
                self.only_stamps.push((at, Recorded { content, ..recorded }));
            }
            _ => {
                let before = before.cloned();
                self.differences.push(Difference { path: at, before, after: Some(recorded) });
            }
        }
        Ok(())
    }

    fn add_deleted(&mut self) {
        for (path, known) in self.known {
            if !self.seen.contains(path) && !self.is_hidden(path) {
                let before = Some(known.clone());
                self.differences.push(Difference { path: path.clone(), before, after: None });
            }
        }
        self.differences.sort_by(|a, b| a.path.cmp(&b.path));
    }
}
