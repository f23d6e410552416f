//! Applies planned replacements to the workspace, and undoes them and the single changes of other tools.
//!
//! Owns the order of writes and their records, the journal of the session with its log of changes, and the previewed plans.
//! `quackd_search::replace` plans the changes. Called by the tools that replace and undo, from threads that may
//! block.
//!
//! These invariants hold whenever the process dies. Every file has its old content or its new content. A
//! replacement can be undone. Nothing else has changed. The exception is a file that has to be written in
//! place, because its names must stay linked or its owner cannot be kept. Such a file may be torn: the journal
//! records it as torn, and an undo restores it.

mod apply;
mod author;
mod change_log;
mod journal_dir;
mod journal_session;
mod json_forms;
mod links;
mod list;
mod manifest;
mod parallel;
mod plans;
mod recording;
mod recovery;
mod report;
mod select;
mod session_journal;
mod undo;
mod undo_id;
mod write;

pub(crate) use apply::apply_blocking;
pub(crate) use author::ChangeAuthor;
pub(crate) use change_log::{Before, MAX_ORIGINAL_BYTES};
pub(crate) use journal_session::JournalSession;
pub(crate) use list::{FileDiff, ListRequest, Listed, ListedFile, list_blocking};
pub(crate) use plans::Plans;
pub(crate) use recording::NewChange;
pub(crate) use report::{
    Applied, ApplyError, EarlyStop, FileReport, InterruptedReplace, LeftReason, UndoError,
    WriteOutcome, detached, older_ones,
};
pub(crate) use select::Which;
pub(crate) use session_journal::Journal;
pub(crate) use undo::{Undone, undo_blocking};

use crate::Toolbox;
use quackd_sandbox::Root;
use std::sync::Arc;

impl Toolbox {
    /// Returns a function that cleans up after a crash during a replacement. It removes temporary files, and
    /// finds interrupted replacements, which the next answer of such a tool reports. It changes no other file.
    /// Run it once when a worker starts, on a thread that may block. Otherwise replacing and undoing run it.
    ///
    /// The function takes less than 1 ms without a crash, otherwise about as long as reading the files of the
    /// interrupted replacement. It returns the number of interrupted replacements. `None` if this session has
    /// not replaced anything yet.
    #[must_use]
    pub fn recovery(&self) -> Option<impl FnOnce() -> usize + Send + use<>> {
        if !self.state.journal.exists() {
            return None;
        }
        let (journal, seen) = (Arc::clone(&self.state.journal), Arc::clone(&self.state.seen));
        let (confinement, workspace) = (Arc::clone(&self.confinement), self.workspace.clone());
        Some(move || {
            let Ok(root) = Root::open(&workspace) else { return 0 };
            // A command can write the journal. Its paths must not show whether a hidden file has a certain content.
            let root = root.with_hidden(confinement.hidden_from_tools());
            let (confinement, seen, journal) = (&*confinement, &*seen, &*journal);
            let author = &ChangeAuthor::default();
            recovery::recover(JournalSession { root: &root, confinement, seen, journal, author })
        })
    }
}

/// Whether originals are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Backup {
    /// In the journal of the session.
    #[default]
    Journal,
    /// Not stored. The replacement cannot be undone.
    None,
}

/// Expectations about a plan. If one fails, nothing is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Expect {
    /// Expected number of changed files.
    pub(crate) files: Option<u64>,
    /// Expected number of changed lines.
    pub(crate) lines: Option<u64>,
    /// Expected number of replaced matches.
    pub(crate) replacements: Option<u64>,
    /// Require that every file still has the planned content. Otherwise changed files are skipped.
    pub(crate) unchanged: bool,
}

#[cfg(test)]
mod tests;
