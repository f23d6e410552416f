//! Records and lists the states of a session's files.

use crate::Lock;
use crate::error::{IsolateError, OnFile as _};
use crate::manifest::{CopyPaths, Manifest, identity};
use crate::notes::Notes;
use crate::recorded::{Changes, Current, Difference, Entries, Recorded, Span, StateFiles, TEXTS};
use crate::scan::{Found, RecordedFiles, ScanInput, scan};
use crate::tree::Tree;
use jiff::Timestamp;
use quackd_protocol::foreign_text::message_line;
use quackd_protocol::isolate::{
    Checkpoint, CheckpointFile, MAX_CHECKPOINT_CALL, MAX_CHECKPOINT_CALLS, MAX_CHECKPOINT_FILES,
    MAX_CHECKPOINTS, MAX_ISOLATED_LIST,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Maximum size of all contents and changes that are kept, in bytes.
const MAX_KEPT: u64 = 1024 * 1024 * 1024;

/// The reason for the changes since the state before.
#[derive(Debug, Clone, Default)]
pub struct Cause {
    /// Names of the calls, one line each.
    pub calls: Vec<String>,
    /// Whether one of them ran commands or used an MCP server, or a restore is the cause.
    pub by_commands: bool,
    /// Whether a call runs at the same time.
    pub while_running: bool,
}

impl Cause {
    /// A cause for a restore.
    pub(crate) fn restore(what: String) -> Self {
        Self { calls: vec![what], by_commands: true, while_running: false }
    }
}

/// The recorded states of a session's files, locked for this process.
#[derive(Debug)]
pub struct Checkpoints {
    pub(crate) files: RecordedFiles,
    pub(crate) states: StateFiles,
    pub(crate) tree: Tree,
    /// Inode of the files' directory.
    directory: u64,
    outputs: Vec<PathBuf>,
    /// When a refresh last wrote these paths of a copy, in milliseconds since 1970.
    pub(crate) refreshed: BTreeMap<PathBuf, i64>,
    /// `None` before the first state.
    pub(crate) newest: Option<Current>,
    /// Whether a content was not kept because there was no room.
    is_full: bool,
    pub(crate) notes: Notes,
    _lock: Lock,
}

impl Checkpoints {
    /// Opens the states in `directory`, which exists. Takes back a restore that was interrupted.
    ///
    /// # Errors
    /// [`IsolateError::Busy`], [`IsolateError::DamagedStates`], [`IsolateError::OtherDirectory`],
    /// [`IsolateError::Damaged`], [`IsolateError::NoCopy`] or [`IsolateError::Io`].
    pub fn open(files: RecordedFiles, directory: &Path) -> Result<Self, IsolateError> {
        let copy = files.copy.as_deref().map(CopyPaths::of);
        let states = StateFiles::new(directory, copy.as_ref().map(CopyPaths::texts));
        let lock = Lock::take(&states.lock())?;
        let tree = Tree::open(&files.tree).on("open", &files.tree)?;
        let opened = File::open(&files.tree).on("open", &files.tree)?;
        let (_, directory) = identity(&opened).on("read", &files.tree)?;
        let mut newest = states.read_current(directory)?;

        let mut notes = Notes::default();
        if states.is_restoring() {
            states.take_back(&tree, &mut notes)?;
            notes.line("an earlier restore was interrupted; what it had written was taken back");
        }
        states.remove_journals()?;

        let (mut outputs, mut refreshed) = (Vec::new(), BTreeMap::new());
        if let Some(copy) = copy {
            let manifest = Manifest::read(&copy.manifest())?;
            if newest.is_none() {
                // The copy as it was made is the first state, and its record has it already.
                let entries = first_entries(&manifest);
                let first = Current { entries, ..Current::default() };
                states.write_current(directory, &first)?;
                newest = Some(first);
            }
            (outputs, refreshed) = (manifest.copied.outputs, manifest.refreshed);
        }

        // A process that ended before its state counted may have left files.
        states.remove_from(newest.as_ref().map_or(0, |newest| newest.number + 1))?;

        let is_full = false;
        Ok(Self {
            files,
            states,
            tree,
            directory,
            outputs,
            refreshed,
            newest,
            is_full,
            notes,
            _lock: lock,
        })
    }

    /// Whether the directory has no state yet.
    #[must_use]
    pub fn is_empty(directory: &Path) -> bool {
        !StateFiles::new(directory, None).has_current()
    }

    /// Whether a restore was interrupted, so that [`Self::open`] writes files.
    #[must_use]
    pub fn is_interrupted(directory: &Path) -> bool {
        StateFiles::new(directory, None).is_restoring()
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
        let Some(newest) = self.newest else { return Ok(Vec::new()) };
        let numbers = self.states.numbers("changes")?;
        // Of the oldest state only the files are known.
        let oldest = numbers.first().map_or(newest.number, |first| first.saturating_sub(1));
        let (mut listed, mut left) = (Vec::new(), MAX_ISOLATED_LIST);

        // The newest states keep their lists of changes. Those of older ones are left out once the reply is full.
        for number in numbers.into_iter().rev() {
            let mut checkpoint = self.states.read_changes(number)?.checkpoint;
            let length =
                serde_json::to_string(&checkpoint.changes).map_or(usize::MAX, |it| it.len());
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => checkpoint.changes.clear(),
            }
            listed.push(checkpoint);
        }

        listed.push(Checkpoint { number: oldest, ..Checkpoint::default() });
        listed.reverse();
        Ok(listed)
    }

    /// Records the state. `None` if nothing differs from the newest one.
    ///
    /// # Errors
    /// [`IsolateError::TooManyFiles`] or [`IsolateError::Io`].
    pub fn take(&mut self, cause: &Cause) -> Result<Option<Checkpoint>, IsolateError> {
        let taken = self.record(cause)?;
        self.prune()?;
        Ok(taken)
    }

    /// As [`Self::take`], without a limit of the number of states.
    pub(crate) fn record(&mut self, cause: &Cause) -> Result<Option<Checkpoint>, IsolateError> {
        let is_first = self.newest.is_none();
        let first = Current::default();
        let known = self.newest.as_ref().unwrap_or(&first);
        let number = known.number + 1;

        // The first state must leave room for others.
        let room = if is_first { MAX_KEPT / 2 } else { MAX_KEPT };
        let input = ScanInput {
            files: &self.files,
            tree: &self.tree,
            outputs: &self.outputs,
            known,
            is_first,
            states: &self.states,
            number,
            left: room.saturating_sub(self.states.stored_bytes()?),
        };

        let found = scan(&input, &mut self.notes)?;
        let Found { differences, only_stamps, skipped, is_full } = found;
        self.is_full |= is_full;

        let mut checkpoint = None;
        if !is_first && !differences.is_empty() {
            checkpoint = Some(describe(number, &differences, cause));
        }

        // Stamps and skipped paths alone make no state. They are recorded, so that the next scan need not read these
        // files.
        let is_new = is_first || checkpoint.is_some();
        if !is_new && only_stamps.is_empty() && skipped == known.skipped {
            return Ok(None);
        }
        let changes = Changes { checkpoint: checkpoint.clone().unwrap_or_default(), differences };

        // Before `current`, which makes the state count.
        if checkpoint.is_some() {
            self.states.write_changes(&changes)?;
        }

        let mut newest = self.newest.take().unwrap_or_default();
        if is_new {
            newest.number = number;
        }
        for Difference { path, after, .. } in changes.differences {
            match after {
                Some(recorded) => drop(newest.entries.insert(path, recorded)),
                None => drop(newest.entries.remove(&path)),
            }
        }
        newest.entries.extend(only_stamps);
        newest.skipped = skipped;
        self.states.write_current(self.directory, &newest)?;
        self.newest = Some(newest);
        Ok(checkpoint)
    }

    /// Removes the oldest states if there are too many.
    pub(crate) fn prune(&self) -> Result<(), IsolateError> {
        let Some(newest) = &self.newest else { return Ok(()) };

        // Once a content found no room, a quarter is freed, so that the next states do not prune each time.
        let max_kept = if self.is_full { MAX_KEPT - MAX_KEPT / 4 } else { MAX_KEPT };
        self.states.prune(&newest.entries, MAX_CHECKPOINTS, max_kept)
    }
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

fn describe(number: u64, differences: &[Difference], cause: &Cause) -> Checkpoint {
    let file = |one: &Difference| CheckpointFile {
        path: one.path.to_string_lossy().into_owned(),
        change: one.kind(),
    };
    let call = |call: &String| message_line(call, MAX_CHECKPOINT_CALL);

    Checkpoint {
        number,
        at_ms: Timestamp::now().as_millisecond(),
        calls: cause.calls.iter().take(MAX_CHECKPOINT_CALLS).map(call).collect(),
        by_commands: cause.by_commands,
        files: differences.len() as u64,
        changes: differences.iter().take(MAX_CHECKPOINT_FILES).map(file).collect(),
        while_running: cause.while_running,
    }
}
