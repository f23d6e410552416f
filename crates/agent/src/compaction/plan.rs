//! Parts of the conversation before a compaction.

use crate::message::Message;
use std::collections::BTreeSet;

/// Parts of the conversation, split for a compaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// First entry that stays in the context.
    pub first_kept_entry_id: String,
    /// Estimated tokens of the context before the compaction.
    pub tokens_before: u64,
    /// Messages to summarize. Empty if the whole history is in `previous_summary`.
    pub history: Vec<Message>,
    /// Start of the turn whose end is kept. Empty if the kept part begins with a turn.
    pub turn_prefix: Vec<Message>,
    /// Summary of the last compaction, without its lists of files.
    pub previous_summary: Option<String>,
    /// Files that were read and not modified, also before earlier compactions.
    pub read_files: BTreeSet<String>,
    /// Files that were written or edited.
    pub modified_files: BTreeSet<String>,
}
