//! Records single changes in the log of the journal, and reads them back.

use super::change_log::{Before, ChangeRecord, LoggedChange, OpenSegment, changes};
use super::report::JournalError;
use super::session_journal::{Journal, JournalState};
use super::undo_id::UndoId;
use quackd_protocol::worker::CallOrigin;
use quackd_search::replace::Digest;
use std::io;
use std::path::PathBuf;

/// A change that is about to happen.
#[derive(Debug)]
pub(crate) struct NewChange<'a> {
    pub(crate) tool: &'a str,
    pub(crate) origin: &'a CallOrigin,
    pub(crate) path: PathBuf,
    pub(crate) before: Before,
    /// The old content, if it is kept.
    pub(crate) original: &'a [u8],
    pub(crate) after: Option<Digest>,
}

impl Journal {
    /// Records a change before it happens. Returns its id.
    ///
    /// # Errors
    /// [`JournalError::Io`]: nothing was recorded.
    pub(crate) fn record_change_blocking(
        &self,
        change: NewChange<'_>,
    ) -> Result<UndoId, JournalError> {
        let NewChange { tool, origin, path, before, original, after } = change;
        let len = original.len() as u64;

        // Locked until the record is written, so that the records are in the order of their numbers.
        let mut state = self.lock_blocking();
        let number = self.take_number(&mut state)?;

        let record = ChangeRecord {
            number,
            at_ms: jiff::Timestamp::now().as_millisecond(),
            tool: tool.to_owned(),
            origin: origin.clone(),
            path,
            before,
            after,
            len,
        };

        let added = self.segment(&mut state, number, len)?.add(record, original);
        if added.is_err() {
            // A part of the record may be in the segment. The next record begins another one.
            state.segment = None;
        }
        Ok(added?)
    }

    /// Records that a recorded change did not happen.
    pub(crate) fn void_change_blocking(&self, id: &UndoId) {
        let mut state = self.lock_blocking();
        // If this fails, an undo finds that the file has another content.
        self.segment(&mut state, id.number, 0).and_then(|segment| segment.void(id.number)).ok();
    }

    /// Records that changes were undone.
    pub(super) fn changes_undone_blocking(&self, numbers: &[u64], by: &str) {
        let mut state = self.lock_blocking();
        for number in numbers {
            // If this fails, another undo finds nothing to do.
            self.segment(&mut state, *number, 0)
                .and_then(|segment| segment.undone(*number, by.to_owned()))
                .ok();
        }
    }

    /// Returns the changes in the log that happened, oldest first.
    pub(super) fn changes_blocking(&self) -> Vec<LoggedChange> {
        let _state = self.lock_blocking();
        self.folder().map(|folder| changes(&folder)).unwrap_or_default()
    }

    /// Returns the segment that gets a line with an original of this size. A new one is named by `number`.
    fn segment<'a>(
        &self,
        state: &'a mut JournalState,
        number: u64,
        original: u64,
    ) -> io::Result<&'a mut OpenSegment> {
        let known = state.segment.take().filter(|segment| segment.has_room(original));
        let segment = match known {
            Some(segment) => segment,
            None => {
                let folder = self.folder_made()?;
                let newest = OpenSegment::newest(&folder);
                match newest.filter(|segment| segment.has_room(original)) {
                    Some(segment) => segment,
                    None => OpenSegment::begin(&folder, number)?,
                }
            }
        };
        Ok(state.segment.insert(segment))
    }
}
