//! Applying planned replacements to the workspace, and taking them back.
//!
//! Owns: in which order files are written and what is noted before; the journal of the session and the plans that
//! were previewed. What would change is planned by `quackd_search::replace`. Called by the tools that replace and
//! undo, from threads that may block.
//!
//! What holds, whenever the process dies: every file has its old content or its new one; what was replaced can be
//! undone; nothing else has changed. One that has to be written in place, because its names must stay joined or
//! its owner cannot be kept, may be torn: it is then known as such, and undoing restores it.

mod apply;
mod folder;
mod journal;
mod links;
mod list;
mod manifest;
mod parallel;
mod plans;
mod recovery;
mod report;
mod undo;
mod write;

pub(crate) use apply::apply_blocking;
pub(crate) use journal::Journal;
pub(crate) use list::{Listed, list_blocking};
pub(crate) use plans::Plans;
pub(crate) use report::{
    Applied, ApplyError, FileReport, Interrupted, Left, Outcome, Stopped, UndoError, older_ones,
};
pub(crate) use undo::{Undone, Which, undo_blocking};

use crate::seen::SeenFiles;
use crate::{Confinement, Toolbox};
use quackd_sandbox::Root;
use std::sync::Arc;

/// What a session writes with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Session<'a> {
    /// The workspace.
    pub(crate) root: &'a Root,
    /// Which names are protected.
    pub(crate) confinement: &'a Confinement,
    /// What the session has read: what is written here counts as read, if what it replaces does.
    pub(crate) seen: &'a SeenFiles,
    /// Where originals are kept.
    pub(crate) journal: &'a Journal,
}

impl Toolbox {
    /// What removes the files that a death in the middle of a replacement has left beside others, and finds out what
    /// it has interrupted, which the next answer of such a tool tells. No file is changed. To be run once, on a
    /// thread that may block, when a worker starts; replacing and undoing do it too if nobody has.
    ///
    /// Takes less than a millisecond if nobody died, else about as long as reading the files of the interrupted
    /// replacement. Gives the number of interrupted ones. `None` if this session has replaced nothing yet.
    #[must_use]
    pub fn recovery(&self) -> Option<impl FnOnce() -> usize + Send + use<>> {
        if !self.journal.exists() {
            return None;
        }
        let (journal, seen) = (Arc::clone(&self.journal), Arc::clone(&self.seen));
        let (confinement, workspace) = (Arc::clone(&self.confinement), self.workspace.clone());
        Some(move || {
            let Ok(root) = Root::open(&workspace) else { return 0 };
            let (confinement, seen, journal) = (&*confinement, &*seen, &*journal);
            recovery::recover(Session { root: &root, confinement, seen, journal })
        })
    }
}

/// Whether originals are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Backup {
    /// In the journal of the session.
    #[default]
    Journal,
    /// Nowhere; what is written cannot be undone.
    None,
}

/// What the caller expects of a plan; if it is not so, nothing is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Expect {
    /// Files that change.
    pub(crate) files: Option<u64>,
    /// Lines that change.
    pub(crate) lines: Option<u64>,
    /// Matches that are replaced.
    pub(crate) replacements: Option<u64>,
    /// Every file still has the planned content. Otherwise those that do not are left as they are.
    pub(crate) unchanged: bool,
}

#[cfg(test)]
mod tests;
