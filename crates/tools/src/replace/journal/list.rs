//! Lists the undoable replacements.

use super::JournalSession;
use super::recovery::recover;
use super::report::InterruptedReplace;
use super::session_journal::UndoId;

/// An entry of the journal.
#[derive(Debug)]
pub(crate) struct Listed {
    /// Id for undoing it.
    pub(crate) id: UndoId,
    /// Number of files.
    pub(crate) n_files: usize,
    /// Id of the undone entry, if this entry is an undo.
    pub(crate) undoes: Option<String>,
    /// Id of the entry that undid this one.
    pub(crate) undone_by: Option<String>,
    /// Whether the originals exist.
    pub(crate) has_originals: bool,
    /// Whether it finished.
    pub(crate) has_ended: bool,
}

/// Returns the entries that no call is writing, newest first, and the interrupted replacements found on the
/// way.
pub(crate) fn list_blocking(session: JournalSession<'_>) -> (Vec<Listed>, Vec<InterruptedReplace>) {
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
