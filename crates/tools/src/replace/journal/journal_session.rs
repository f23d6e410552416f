//! State of a session that applying, undoing, listing and recovery share.

use super::author::ChangeAuthor;
use super::session_journal::Journal;
use crate::Confinement;
use crate::read_tracker::ReadTracker;
use quackd_sandbox::Root;

/// Session state for writing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JournalSession<'a> {
    /// Root of the workspace.
    pub(crate) root: &'a Root,
    /// Protected names.
    pub(crate) confinement: &'a Confinement,
    /// Versions that the session has read. A written file counts as read if the previous version does.
    pub(crate) seen: &'a ReadTracker,
    /// Storage of the originals.
    pub(crate) journal: &'a Journal,
    /// Tool and caller for the records of changes.
    pub(crate) author: &'a ChangeAuthor,
}
