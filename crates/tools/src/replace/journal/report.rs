//! Result of applying or undoing, for each file, and the reasons why nothing was done.

use super::undo_id::UndoId;
use crate::search_common::text::shown;
use quackd_protocol::denial::Denial;
use quackd_sandbox::Rule;
use quackd_search::replace::{ReplaceError, SkipReason};
use std::path::{Path, PathBuf};

/// Result of applying or undoing a plan.
#[derive(Debug, Clone, Default)]
pub(crate) struct Applied {
    /// Id for undoing the result. `None` if nothing was written or no originals are stored.
    pub(crate) undo_id: Option<UndoId>,
    /// All files of the plan, in its order.
    pub(crate) files: Vec<FileReport>,
    /// Reason for an early stop.
    pub(crate) stopped: Option<EarlyStop>,
    /// Journal entries that were dropped to make space.
    pub(crate) dropped: Vec<UndoId>,
    /// Replacements of this session that a crash interrupted, not reported before.
    pub(crate) interrupted: Vec<InterruptedReplace>,
}

impl Applied {
    /// Returns the number of written files.
    pub(crate) fn n_written(&self) -> usize {
        self.written().count()
    }

    /// Returns the paths of the written files.
    pub(crate) fn written(&self) -> impl Iterator<Item = &Path> {
        let is_written = |file: &&FileReport| matches!(file.outcome, WriteOutcome::Written { .. });
        self.files.iter().filter(is_written).map(|file| file.path.as_path())
    }
}

/// One file of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileReport {
    /// Path relative to the workspace.
    pub(crate) path: PathBuf,
    /// Result for the file.
    pub(crate) outcome: WriteOutcome,
}

/// Result of writing a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// The file has the new content.
    Written {
        /// Whether the file had other names that are outside the workspace or protected. Those names still have
        /// the old content, and this name is now a separate file.
        is_detached: bool,
    },
    /// The file is unchanged.
    Left(LeftReason),
}

/// Reason for not writing a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LeftReason {
    /// The content changed since the change was planned.
    #[error("changed since")]
    Conflict,
    /// The file already has the new content.
    #[error("has the wanted content already")]
    Already,
    /// The file no longer exists.
    #[error("is gone")]
    Gone,
    /// The file is protected: programs would run or obey it.
    #[error("is protected: it {}", .0.reason())]
    Protected(Rule),
    /// The file cannot be edited.
    #[error("{0}")]
    Skipped(SkipReason),
    /// The original is not stored, because it was too large or could not be read.
    #[error("its old content was not kept")]
    NotKept,
    /// The stored original is damaged.
    #[error("its original in the journal is damaged")]
    Damaged,
    /// A system call failed.
    #[error("{reason}")]
    Failed {
        /// Error text as in edit_file.
        reason: String,
        /// Likely denial by the session's policy.
        denial: Option<Denial>,
    },
    /// The replacement stopped before this file.
    #[error("was not reached")]
    NotReached,
}

/// Reason for stopping before all files were written. Files written before are complete and can be undone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EarlyStop {
    /// The caller canceled.
    #[error("cancelled")]
    Cancelled,
    /// The disk is full or failed, or the originals cannot be stored.
    #[error("{0}")]
    Failed(String),
}

/// A replacement that a crash interrupted. Every file has its old content or its new content, except those in
/// `n_torn`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InterruptedReplace {
    /// Id for undoing it.
    pub(crate) undo_id: UndoId,
    /// Number of files with the new content.
    pub(crate) n_new: usize,
    /// Number of files with the old content.
    pub(crate) n_old: usize,
    /// Number of files that were being written in place and have a part of the new content. Undoing restores
    /// them too.
    pub(crate) n_torn: usize,
    /// Number of files that were deleted or changed by other programs.
    pub(crate) n_other: usize,
}

/// Reason why originals cannot be stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    /// The originals are too large.
    #[error("the originals take {needed} bytes, and at most {max} are kept for undoing")]
    TooLarge {
        /// Required space in bytes.
        needed: u64,
        /// Available space in bytes.
        max: u64,
    },
    /// A system call failed.
    #[error("the originals cannot be kept: {0}")]
    Io(#[from] std::io::Error),
}

/// Reason why nothing was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    /// The plan is incomplete because of the deadline or the file limit.
    #[error("the plan is not complete; nothing was changed")]
    Incomplete,
    /// The plan does not meet the caller's expectation.
    #[error("expected {expected} {what}, but {found} would change; nothing was changed")]
    Expected {
        /// `files`, `lines` or `replacements`.
        what: &'static str,
        expected: u64,
        found: u64,
    },
    /// Some files changed since the preview, and the caller required all or none. At most ten are named.
    #[error("{} of the planned files changed since; nothing was changed", .n)]
    Changed {
        /// Number of changed files.
        n: usize,
        first: Vec<PathBuf>,
    },
    /// The originals cannot be stored.
    #[error("{0}; nothing was changed")]
    Journal(#[from] JournalError),
    /// The request of the plan can no longer be compiled, although it was valid when the plan was made.
    #[error(transparent)]
    Request(#[from] ReplaceError),
}

/// Reason why nothing was undone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UndoError {
    /// The entry does not exist or was dropped.
    #[error("there is nothing to undo by the id '{0}'; the newest {max} replacements are kept, and newer changes of single files", max = super::undo_id::MAX_ENTRIES)]
    Unknown(String),
    /// The journal has no change of this call or turn.
    #[error(
        "{0} changed no file, or the old content is no longer kept; changes of commands are not recorded"
    )]
    UnknownGroup(String),
    /// The journal has no change of a turn.
    #[error(
        "no turn of the agent changed a file that can be undone; changes of commands are not recorded"
    )]
    NoTurn,
    /// The session has nothing to undo.
    #[error("there is nothing to undo")]
    Nothing,
    /// The last replacement was made without a backup. Older replacements are not undone in its place.
    #[error("the last change, '{id}', was made without a backup and cannot be undone{}", older_ones(.older).map(|older| format!("; {older}")).unwrap_or_default())]
    LastHasNoOriginals {
        /// Id of the last replacement.
        id: UndoId,
        /// Entries that can be undone by id, newest first.
        older: Vec<UndoId>,
    },
    /// The entry has no originals.
    #[error("'{0}' was made without a backup and cannot be undone")]
    NoOriginals(UndoId),
    /// The entry was already undone.
    #[error("'{what}' is undone already, by '{by}'")]
    AlreadyUndone { what: String, by: String },
    /// Another call is writing the entry.
    #[error("'{0}' is not finished yet")]
    Running(UndoId),
    /// The originals cannot be read.
    #[error("the originals of '{what}' cannot be read: {reason}")]
    Unreadable { what: String, reason: std::io::Error },
}

/// Reports files with several names, of which some were not written. Names the first file.
pub(crate) fn detached(files: &[FileReport]) -> Option<String> {
    let is_detached = |report: &&FileReport| {
        matches!(report.outcome, WriteOutcome::Written { is_detached: true })
    };
    let mut all = files.iter().filter(is_detached);
    let first = shown(&all.next()?.path);
    Some(match all.count() {
        0 => format!("{first} had other names, which keep the old content"),
        1 => format!("{first} and 1 more file had other names, which keep the old content"),
        n => format!("{first} and {n} more files had other names, which keep the old content"),
    })
}

/// Lists other undoable entries, newest first, if there are any: `older ones can be undone by id: 2-0123abcd`.
pub(crate) fn older_ones(ids: &[UndoId]) -> Option<String> {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    (!ids.is_empty()).then(|| format!("older ones can be undone by id: {}", ids.join(", ")))
}
