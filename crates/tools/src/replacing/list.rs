//! What can be taken back.

use super::Session;
use super::journal::UndoId;
use super::recovery::recover;
use super::report::Interrupted;

/// An entry of the journal.
#[derive(Debug)]
pub(crate) struct Listed {
    /// By which it can be undone.
    pub(crate) id: UndoId,
    /// Files that it is about.
    pub(crate) n_files: usize,
    /// What it has undone, if it is an undo.
    pub(crate) undoes: Option<String>,
    /// What has undone it.
    pub(crate) undone_by: Option<String>,
    /// The originals are there.
    pub(crate) has_originals: bool,
    /// It was not interrupted.
    pub(crate) has_ended: bool,
}

/// The entries that no call is writing, newest first, and what is found out of earlier deaths on the way.
pub(crate) fn list_blocking(session: Session<'_>) -> (Vec<Listed>, Vec<Interrupted>) {
    recover(session);
    let interrupted = session.journal.untold_blocking();
    let entries = session.journal.entries_blocking().into_iter().rev();
    let listed = entries.map(|(id, manifest)| Listed {
        id,
        n_files: manifest.steps.len(),
        undoes: manifest.began.undoes,
        undone_by: manifest.undone_by,
        has_originals: manifest.began.has_originals,
        has_ended: manifest.has_ended,
    });
    (listed.collect(), interrupted)
}
