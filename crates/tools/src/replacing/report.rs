//! What became of each file.

use super::journal::{JournalError, UndoId};
use quackd_protocol::denial::Denial;
use quackd_sandbox::Rule;
use quackd_search::replace::{ReplaceError, SkipReason};
use std::path::PathBuf;

/// What applying a plan, or undoing one, has done.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// By which it can be undone; `None` if nothing was written or no originals are kept.
    pub(crate) undo_id: Option<UndoId>,
    /// Every file of the plan, in its order.
    pub(crate) files: Vec<FileReport>,
    /// Why the files that were not reached were not.
    pub(crate) stopped: Option<Stopped>,
    /// Entries of the journal that were dropped to make room.
    pub(crate) dropped: Vec<UndoId>,
    /// Replacements of this session that a death has interrupted, found out just now.
    pub(crate) interrupted: Vec<Interrupted>,
}

impl Applied {
    /// How many files have their new content.
    pub(crate) fn n_written(&self) -> usize {
        self.files.iter().filter(|file| matches!(file.outcome, Outcome::Written { .. })).count()
    }
}

/// One file of a plan.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileReport {
    /// Relative to the workspace.
    pub(crate) path: PathBuf,
    /// What became of it.
    pub(crate) outcome: Outcome,
}

/// What became of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has the new content.
    Written {
        /// It had other names that are not all in the workspace, or not all to be written: they have the old
        /// content still, and this name is a file of its own now.
        is_detached: bool,
    },
    /// It is as it was.
    Left(Left),
}

/// Why a file was not written.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Left {
    /// It does not have the content that it had when the change was planned.
    #[error("changed since")]
    Conflict,
    /// It has the wanted content already.
    #[error("has the wanted content already")]
    Already,
    /// There is no such file any more.
    #[error("is gone")]
    Gone,
    /// Programs would run or obey it.
    #[error("is protected: it {}", .0.reason())]
    Protected(Rule),
    /// Editing it did not succeed.
    #[error("{0}")]
    Skipped(SkipReason),
    /// The original that the journal kept is not what it was.
    #[error("its original in the journal is damaged")]
    Damaged,
    /// The system refused.
    #[error("{reason}")]
    Failed {
        /// As edit_file tells it.
        reason: String,
        /// If the session's policy is likely to be the cause.
        denial: Option<Denial>,
    },
    /// It was not this file's turn any more.
    #[error("was not reached")]
    NotReached,
}

/// Why files were not reached. What was written before is whole and can be undone.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stopped {
    /// The caller wants no more.
    #[error("cancelled")]
    Cancelled,
    /// There is no room for more.
    #[error("{0}")]
    Failed(String),
}

/// A replacement that a death has interrupted. Every file of it has its old content or its new one, but those of
/// `n_torn`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interrupted {
    /// By which it can be undone.
    pub(crate) undo_id: UndoId,
    /// Files with the new content.
    pub(crate) n_new: usize,
    /// Files with the old content.
    pub(crate) n_old: usize,
    /// Files that were being written in place and have a part of the new content. Undoing restores them too.
    pub(crate) n_torn: usize,
    /// Files that are gone or were changed by others.
    pub(crate) n_other: usize,
}

/// Why nothing was written at all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    /// The deadline cut the plan, or there are too many files for one.
    #[error("the plan is not complete; nothing was changed")]
    Incomplete,
    /// It is not what the caller expects.
    #[error("expected {expected} {what}, but {found} would change; nothing was changed")]
    Expected {
        /// `files`, `lines` or `replacements`.
        what: &'static str,
        expected: u64,
        found: u64,
    },
    /// These files changed since they were previewed, and all or none were asked for. At most ten are named.
    #[error("{} of the planned files changed since; nothing was changed", .n)]
    Changed {
        /// How many.
        n: usize,
        first: Vec<PathBuf>,
    },
    /// The originals cannot be kept.
    #[error("{0}; nothing was changed")]
    Journal(#[from] JournalError),
    /// The request of the plan cannot be read again; it could when it was made.
    #[error(transparent)]
    Request(#[from] ReplaceError),
}

/// Why nothing was undone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UndoError {
    /// There is no such entry, or it was dropped.
    #[error("there is nothing to undo by the id '{0}'; the newest {max} are kept", max = super::journal::MAX_ENTRIES)]
    Unknown(String),
    /// The session has replaced nothing that is not undone yet.
    #[error("there is nothing to undo")]
    Nothing,
    /// The last one that is not undone was made without a backup. The ones before it are not taken back in its
    /// place: nobody asked for that.
    #[error("the last replacement, '{id}', was made without a backup and cannot be undone{}", older_ones(.older).map(|older| format!("; {older}")).unwrap_or_default())]
    LastHasNoOriginals {
        /// The last one.
        id: UndoId,
        /// What can be undone by its id, newest first.
        older: Vec<UndoId>,
    },
    /// No originals were kept.
    #[error("'{0}' was made without a backup and cannot be undone")]
    NoOriginals(UndoId),
    /// It was undone already.
    #[error("'{id}' is undone already, by '{by}'")]
    AlreadyUndone { id: UndoId, by: String },
    /// It is being written by another call.
    #[error("'{0}' is not finished yet")]
    Running(UndoId),
    /// The originals cannot be read.
    #[error("the originals of '{id}' cannot be read: {reason}")]
    Unreadable { id: UndoId, reason: std::io::Error },
}

/// What else can be undone, newest first, if there is anything: `older ones can be undone by id: 2-0123abcd`.
pub(crate) fn older_ones(ids: &[UndoId]) -> Option<String> {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    (!ids.is_empty()).then(|| format!("older ones can be undone by id: {}", ids.join(", ")))
}
