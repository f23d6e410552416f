//! State of a session. Applying, undoing, listing and recovery share it.

use super::author::ChangeAuthor;
use super::session_journal::Journal;
use crate::Confinement;
use crate::read_tracker::ReadTracker;
use quackd_sandbox::Root;

/// Root, confinement and record of reads of the session whose files change.
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
