//! Private copies of workspaces, for isolated sessions: makes a copy, compares it with the workspace, and writes its
//! changes back. Also records states of a session's files, and restores them.
//!
//! Everything is called by the process `quack isolate`, which is confined to the workspace and the directory of one copy.
//! The session writes the copy, so every name and every file in it may be hostile; other programs change the workspace at
//! any time.
//!
//! In reading order:
//! - `tree`, `walk`: names below a directory, without links;
//! - `node`: the state of one path;
//! - `manifest`: the record of what both sides had in common;
//! - `copy`, `private_git`, `ignored`: make the copy;
//! - `changes`, `plan`, `report`: compare it with the workspace;
//! - `journal`: writes many files, all or none;
//! - `apply`: write the changes to the workspace, and take them back;
//! - `recorded`, `store`, `scan`, `checkpoint`, `restore`: states of a session's files.

mod apply;
mod changes;
mod checkpoint;
mod copy;
mod error;
mod ignored;
mod journal;
mod manifest;
mod node;
mod notes;
mod path_text;
mod plan;
mod private_git;
mod recorded;
mod report;
mod restore;
mod scan;
mod store;
mod tree;
mod walk;

pub use checkpoint::Checkpoints;
pub use copy::{CopyOptions, copy_workspace};
pub use error::IsolateError;
pub use scan::RecordedFiles;

use changes::Change;
use error::OnFile as _;
use manifest::{CopyPaths, Manifest, Texts, identity};
use notes::Notes;
use plan::{Decision, Planner};
use quackd_protocol::isolate::{IsolatedChoice, IsolatedReport, MergeRule};
use rustix::fs::FlockOperation;
use std::fs::File;
use std::path::Path;
use tree::{Tree, Trees};

/// An open copy and its workspace, locked for this process.
#[derive(Debug)]
pub struct IsolatedCopy {
    paths: CopyPaths,
    manifest: Manifest,
    base: Tree,
    copy: Tree,
    texts: Texts,
    user_excludes: Option<String>,
    notes: Notes,
    _lock: Lock,
}

/// Exclusive lock on a copy, or on recorded states. Unlocks it also for programs that inherited the descriptor.
#[derive(Debug)]
struct Lock(File);

impl Lock {
    fn take(path: &Path) -> Result<Self, IsolateError> {
        let lock = manifest::private_file(path).on("open", path)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_held| IsolateError::Busy)?;
        Ok(Self(lock))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The kernel unlocks it at the latest when the process ends.
        rustix::fs::flock(&self.0, FlockOperation::Unlock).ok();
    }
}

impl IsolatedCopy {
    /// Opens the copy in `directory`. Takes back what an interrupted command wrote.
    ///
    /// # Errors
    /// [`IsolateError::NoCopy`], [`IsolateError::Replaced`], [`IsolateError::Busy`], [`IsolateError::Damaged`] or
    /// [`IsolateError::Io`].
    pub fn open(
        workspace: &Path,
        directory: &Path,
        user_excludes: Option<String>,
    ) -> Result<Self, IsolateError> {
        let paths = CopyPaths::of(directory);
        let lock = Lock::take(&paths.lock())?;
        let recorded = Manifest::read(&paths.manifest())?;
        let opened = File::open(workspace).on("open", workspace)?;
        if identity(&opened).on("read", workspace)? != recorded.base {
            return Err(IsolateError::Replaced);
        }
        let base = Tree::open(workspace).on("open", workspace)?;
        let mut notes = Notes::default();
        if apply::recover(&paths, &base, &mut notes)? {
            notes.line("an earlier command was interrupted; what it had written was taken back");
        }
        Ok(Self {
            manifest: Manifest::read(&paths.manifest())?,
            copy: Tree::open(&paths.tree()).on("open", &paths.tree())?,
            texts: Texts::open(&paths.texts())?,
            paths,
            base,
            user_excludes,
            notes,
            _lock: lock,
        })
    }

    /// Compares the copy with the workspace.
    ///
    /// # Errors
    /// [`IsolateError::TooManyChanges`] or [`IsolateError::Io`].
    pub fn diff(
        mut self,
        choice: &IsolatedChoice,
        text: bool,
    ) -> Result<IsolatedReport, IsolateError> {
        let (decided, digest) = self.decide(choice, None)?;
        let mut report = report::report(&decided, digest, self.notes);
        if text {
            report::add_texts(&mut report, &decided, &self.copy, &mut self.texts)?;
        }
        Ok(report)
    }

    /// Writes the chosen changes to the workspace, all or none: with a conflict nothing is written.
    ///
    /// # Errors
    /// [`IsolateError::Changed`] if `expect` is not the digest of the changes; [`IsolateError::ChangedNow`],
    /// [`IsolateError::TooManyChanges`] or [`IsolateError::Io`]. The workspace is then as before.
    pub fn apply(
        mut self,
        choice: &IsolatedChoice,
        merge: Option<MergeRule>,
        dry_run: bool,
        expect: Option<&str>,
    ) -> Result<IsolatedReport, IsolateError> {
        let (decided, digest) = self.decide(choice, merge)?;
        if let Some(expected) = expect.filter(|expected| *expected != digest) {
            return Err(IsolateError::Changed { expected: expected.to_owned() });
        }
        let has_any = decided.iter().any(|(_, decision)| decision.writes());
        let mut report = report::report(&decided, digest, self.notes);
        if !dry_run && report.conflicts == 0 && has_any {
            let trees = Trees { base: &self.base, copy: &self.copy };
            apply::apply(&self.paths, &mut self.manifest, trees, &mut self.texts, &decided)?;
            report.written = true;
        }
        Ok(report)
    }

    /// Takes back the last [`Self::apply`]. Files that changed since are left.
    ///
    /// # Errors
    /// [`IsolateError::NothingToUndo`], [`IsolateError::Damaged`] or [`IsolateError::Io`].
    pub fn undo(self) -> Result<IsolatedReport, IsolateError> {
        let taken_back = apply::undo(&self.paths, &self.base)?;
        Ok(report::undone(&taken_back, self.notes))
    }

    fn decide(
        &mut self,
        choice: &IsolatedChoice,
        merge: Option<MergeRule>,
    ) -> Result<(Vec<(Change, Decision)>, String), IsolateError> {
        let excludes = self.user_excludes.as_deref();
        let trees = Trees { base: &self.base, copy: &self.copy };
        let changes = changes::find(&self.manifest, trees, excludes, choice, &mut self.notes)?;
        let digest = report::digest(&changes);
        let mut planner = Planner { trees, texts: &mut self.texts, choice, merge, merged_bytes: 0 };
        let decided: Result<Vec<_>, IsolateError> = changes
            .into_iter()
            .map(|change| planner.decide(&change).map(|decision| (change, decision)))
            .collect();
        Ok((decided?, digest))
    }
}
