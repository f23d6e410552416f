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
//! - `sent_files`: the files that go to another machine;
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
mod sent_files;
mod store;
mod tree;
mod walk;

pub use checkpoint::{Cause, Checkpoints};
pub use copy::{CopyOptions, copy_workspace};
pub use error::IsolateError;
pub use scan::RecordedFiles;
pub use sent_files::{SentFiles, SentNode, SentSize};

use changes::{Change, ScanInput};
use error::OnFile as _;
use manifest::{CopyPaths, Manifest, Texts, identity};
use node::Node;
use notes::Notes;
use plan::{Decision, Planner};
use quackd_protocol::isolate::{IsolatedChoice, IsolatedReport, MergeRule};
use rustix::fs::FlockOperation;
use std::fs::File;
use std::path::{Path, PathBuf};
use tree::{Direction, Sides, Tree};

/// Input of [`IsolatedCopy::refresh`].
#[derive(Debug, Clone, Default)]
pub struct RefreshOptions {
    /// Relative paths that the session must not see. They are left out.
    pub hidden: Vec<PathBuf>,
    /// Treatment of changes of both sides that cannot be merged.
    pub merge: Option<MergeRule>,
    /// Only say what would be written.
    pub dry_run: bool,
    /// Whether a command of the session may be using its repository, which then stays.
    pub keeps_git: bool,
    /// Most files of the copy.
    pub max_files: u64,
    /// Largest size of the copy in bytes.
    pub max_bytes: u64,
}

/// An open copy and its workspace, locked for this process.
#[derive(Debug)]
pub struct IsolatedCopy {
    workspace: PathBuf,
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

        // The record belongs to one directory. Another one can have the path now.
        let opened = File::open(workspace).on("open", workspace)?;
        if identity(&opened).on("read", workspace)? != recorded.base {
            return Err(IsolateError::Replaced);
        }

        let base = Tree::open(workspace).on("open", workspace)?;
        let mut notes = Notes::default();
        let copy = Tree::open(&paths.tree()).on("open", &paths.tree())?;
        for (direction, target) in [(Direction::Apply, &base), (Direction::Refresh, &copy)] {
            if apply::recover(&paths, direction, target, &mut notes)? {
                notes
                    .line("an earlier command was interrupted; what it had written was taken back");
            }
        }
        Ok(Self {
            // Read again: a recovery writes it.
            manifest: Manifest::read(&paths.manifest())?,
            copy,
            texts: Texts::open(&paths.texts())?,
            workspace: workspace.to_owned(),
            paths,
            base,
            user_excludes,
            notes,
            _lock: lock,
        })
    }

    /// Whether a command on the copy in `directory` was interrupted, so that [`Self::open`] writes files.
    #[must_use]
    pub fn is_interrupted(directory: &Path) -> bool {
        apply::is_interrupted(&CopyPaths::of(directory))
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
        let (decided, digest) = self.decide(Direction::Apply, choice, None, Vec::new())?;
        let recorded = self.manifest.references;

        let own_references =
            recorded.is_some() && private_git::references_of_copy(&self.copy) != recorded;
        if own_references {
            self.notes
                .line("the session changed branches or other references: quack diff --commits");
        }

        let mut report = report::report(&decided, digest, self.notes);
        report.own_references = own_references;
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
        let (decided, digest) = self.decide(Direction::Apply, choice, merge, Vec::new())?;

        if let Some(expected) = expect.filter(|expected| *expected != digest) {
            return Err(IsolateError::Changed { expected: expected.to_owned() });
        }

        let written = !dry_run && self.write(Direction::Apply, &decided)?;
        Ok(IsolatedReport { written, ..report::report(&decided, digest, self.notes) })
    }

    /// Writes the chosen changes of the workspace to the copy, all or none: with a conflict nothing is written. The copy's
    /// repository is made again if only the workspace's has new commits or references.
    ///
    /// # Errors
    /// As [`Self::apply`]; [`IsolateError::TooLarge`].
    pub fn refresh(
        mut self,
        choice: &IsolatedChoice,
        options: RefreshOptions,
    ) -> Result<IsolatedReport, IsolateError> {
        let RefreshOptions { hidden, merge, dry_run, keeps_git, max_files, max_bytes } = options;
        let (decided, digest) = self.decide(Direction::Refresh, choice, merge, hidden)?;
        // Before the first write: a refresh is all or nothing.
        self.check_size(&decided, max_files, max_bytes)?;

        let has_conflict = decided.iter().any(|(_, decision)| decision.is_conflict());
        let mut written = false;
        if !dry_run && !has_conflict {
            written = self.write(Direction::Refresh, &decided)?;
            // After a refresh of single files, the others are still those of the old commits.
            if choice.paths.is_empty() {
                written |= self.refresh_git(keeps_git)?;
            }
        }
        Ok(IsolatedReport { written, ..report::report(&decided, digest, self.notes) })
    }

    /// Checks that the refreshed copy keeps the limits of a new one.
    fn check_size(
        &self,
        decided: &[(Change, Decision)],
        max_files: u64,
        max_bytes: u64,
    ) -> Result<(), IsolateError> {
        let len = |node: &Node| if let Node::File { len, .. } = node { *len } else { 0 };
        let size = |node: Option<&Node>| (u64::from(node.is_some()), node.map_or(0, len));
        let known = self.manifest.entries.values().map(|common| size(Some(&common.node)));
        let (mut files, mut bytes) = known.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));

        for (change, decision) in decided.iter().filter(|(_, decision)| decision.writes()) {
            let (before, after) = (size(change.common.as_ref()), size(decision.after.as_ref()));
            files = (files + after.0).saturating_sub(before.0);
            bytes = (bytes + after.1).saturating_sub(before.1);
        }

        if max_files < files || max_bytes < bytes {
            return Err(IsolateError::TooLarge { files, bytes, max_files, max_bytes });
        }
        Ok(())
    }

    /// Makes the copy's repository again if only that of the workspace has changed. Returns whether it did.
    fn refresh_git(&mut self, keeps_git: bool) -> Result<bool, IsolateError> {
        let of_workspace = private_git::references_of_workspace(&self.workspace, &self.base);
        let of_copy = private_git::references_of_copy(&self.copy);
        if of_workspace.is_none() || of_workspace == self.manifest.references {
            return Ok(false);
        }
        if of_workspace == of_copy {
            // The session has the same, or an earlier refresh was interrupted at its end.
            self.manifest.references = of_copy;
            self.manifest.write(&self.paths.manifest())?;
            return Ok(false);
        }

        let why = match of_copy {
            _ if self.manifest.references.is_none() => Some("an earlier version made the copy"),
            _ if keeps_git => Some("calls run in the session"),
            of_copy if of_copy.is_none() || of_copy != self.manifest.references => {
                Some("the session changed its own references")
            }
            _ if private_git::has_work(&self.copy) => {
                Some("the session has a merge, rebase, submodule or worktree in it")
            }
            _ => None,
        };

        if let Some(why) = why {
            self.notes.line(&format!(
                "the copy's repository does not get the new commits of the workspace, because {why}; their files appear as changes in it"
            ));
            return Ok(false);
        }

        let Some(references) =
            private_git::renew(&self.workspace, &self.base, &self.copy, of_copy, &self.paths)?
        else {
            self.notes.line("the session changed its repository at the same moment: it stays");
            return Ok(false);
        };
        self.manifest.references = Some(references);
        self.manifest.write(&self.paths.manifest())?;

        self.notes.line(&format!(
            "the copy's repository has the new commits of the workspace; the earlier one, with what was staged in it, is in {}",
            self.paths.replaced_git().display()
        ));
        Ok(true)
    }

    /// Writes the decisions unless one is a conflict. Returns whether it wrote.
    fn write(
        &mut self,
        direction: Direction,
        decided: &[(Change, Decision)],
    ) -> Result<bool, IsolateError> {
        let has_conflict = decided.iter().any(|(_, decision)| decision.is_conflict());
        if has_conflict || !decided.iter().any(|(_, decision)| decision.writes()) {
            return Ok(false);
        }

        let Self { paths, manifest, base, copy, texts, .. } = self;
        let sides = Sides::new(direction, base, copy);
        apply::apply(paths, manifest, sides, texts, decided)?;
        Ok(true)
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
        direction: Direction,
        choice: &IsolatedChoice,
        merge: Option<MergeRule>,
        hidden: Vec<PathBuf>,
    ) -> Result<(Vec<(Change, Decision)>, String), IsolateError> {
        let input = ScanInput { user_excludes: self.user_excludes.as_deref(), hidden };
        let sides = Sides::new(direction, &self.base, &self.copy);

        let changes = changes::find(&self.manifest, sides, &input, choice, &mut self.notes)?;
        let digest = report::digest(&changes);

        let mut planner = Planner { sides, texts: &mut self.texts, choice, merge, merged_bytes: 0 };
        let decided: Result<Vec<_>, IsolateError> = changes
            .into_iter()
            .map(|change| planner.decide(&change).map(|decision| (change, decision)))
            .collect();
        Ok((decided?, digest))
    }
}
