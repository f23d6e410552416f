//! Replaces the content of a file for `write_file` and `edit_file`, and records the old content first, so that `undo` can
//! restore it.

use crate::replace::journal::{Before, ChangeAuthor, Journal, MAX_ORIGINAL_BYTES, NewChange};
use crate::{Call, Toolbox};
use quackd_sandbox::{FileVersion, Target, WriteError};
use quackd_search::replace::Digest;
use std::borrow::Cow;
use std::sync::Arc;

/// Records the changes of one call.
#[derive(Debug, Clone)]
pub(crate) struct ChangeRecorder {
    journal: Arc<Journal>,
    author: ChangeAuthor,
}

/// Result of a recorded replacement.
#[derive(Debug)]
pub(crate) struct RecordedWrite {
    pub(crate) version: FileVersion,
    /// Says that the change cannot be undone, and why.
    pub(crate) advice: Option<String>,
}

impl ChangeRecorder {
    pub(crate) fn new(toolbox: &Toolbox, call: &Call) -> Self {
        let author =
            ChangeAuthor { tool: call.spec.tool.clone(), origin: call.spec.origin.clone() };
        Self { journal: Arc::clone(&toolbox.state.journal), author }
    }

    /// Replaces the content of `target`. `old` is its content, if the caller has read it. A change that cannot be recorded
    /// happens nevertheless.
    ///
    /// # Errors
    /// Same as [`Target::replace`].
    pub(crate) fn replace_blocking(
        &self,
        target: &mut Target,
        old: Option<&[u8]>,
        content: &[u8],
        give_up: &dyn Fn() -> bool,
    ) -> Result<RecordedWrite, WriteError> {
        let exists = target.version().is_some();
        let old = match old {
            Some(old) => Some(Cow::Borrowed(old)),
            None => target.read(MAX_ORIGINAL_BYTES).ok().map(Cow::Owned),
        };

        let before = match &old {
            _ if !exists => Before::Absent,
            Some(old) => Before::Kept(Digest::of(old)),
            None => Before::NotKept,
        };

        let after = Digest::of(content);
        // An equal content leaves nothing to undo.
        if before == Before::Kept(after) {
            let version = target.replace(content, give_up)?;
            return Ok(RecordedWrite { version, advice: None });
        }

        let recorded = self.journal.record_change_blocking(NewChange {
            tool: &self.author.tool,
            origin: &self.author.origin,
            path: target.relative().to_path_buf(),
            before,
            original: old.as_deref().unwrap_or_default(),
            after: Some(after),
        });
        let replaced = target.replace(content, give_up);
        if let (Err(_), Ok(id)) = (&replaced, &recorded) {
            self.journal.void_change_blocking(id);
        }

        let advice = match recorded {
            Err(error) => Some(format!("note: undo cannot take this change back: {error}")),
            Ok(_) if before == Before::NotKept => Some(format!(
                "note: undo cannot take this change back: the old content has more than {} MiB or \
                 cannot be read",
                MAX_ORIGINAL_BYTES / (1024 * 1024)
            )),
            Ok(_) => None,
        };
        Ok(RecordedWrite { version: replaced?, advice })
    }
}
