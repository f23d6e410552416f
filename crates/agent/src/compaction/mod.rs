//! Compaction: replaces the older part of a conversation by a summary, before the context is full.
//!
//! Pure planning. The agent worker sends the prompts of [`summary_prompts`] to the model and appends the entry of
//! [`Plan::entry`].

mod estimate;
mod plan;
mod prompts;

pub use self::estimate::{estimate_tokens, keep_recent_tokens, message_tokens, should_compact};
pub use self::plan::Plan;
pub use self::prompts::{Prompt, SummaryPrompts, summary_prompts};

use crate::message::{Message, Usage};
use crate::transcript::{EntryKind, Transcript, context_entries, is_compaction};
use quackd_protocol::tools::find_spelling;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Maximum number of paths in each list of files of a summary.
const MAX_FILES: usize = 1000;

/// Reason why there is nothing to summarize. The texts are Pi's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CompactionError {
    /// There is no message after the last compaction.
    #[error("Already compacted")]
    AlreadyCompacted,
    /// All messages are recent.
    #[error("Nothing to compact (session too small)")]
    TooSmall,
}

/// A message for the model, with the position of its entry on the path.
type Item<'a> = (usize, Cow<'a, Message>);

/// Splits the context of the current branch so that about `keep_recent_tokens` stay, see [`keep_recent_tokens`].
///
/// The kept part never begins with the result of a tool.
///
/// # Errors
///
/// If there is nothing to summarize.
pub fn plan(transcript: &Transcript, keep_recent_tokens: u64) -> Result<Plan, CompactionError> {
    let path = transcript.path();
    let items = context_entries(&path);
    let last_compaction = path.iter().rposition(|entry| is_compaction(entry));
    if last_compaction.is_some_and(|last| items.iter().all(|(at, _)| *at <= last)) {
        return Err(CompactionError::AlreadyCompacted);
    }

    // The earlier summary is not summarized as a message: it goes into the prompt.
    let context: Vec<&Message> = items.iter().map(|(_, message)| &**message).collect();
    let tokens_before = estimate_tokens(&context);
    let is_summary = |item: &Item<'_>| matches!(*item.1, Message::CompactionSummary { .. });
    let items: Vec<_> = items.into_iter().filter(|item| !is_summary(item)).collect();

    let cut = cut_point(&items, keep_recent_tokens).ok_or(CompactionError::TooSmall)?;
    let (before, kept) = items.split_at(cut);
    let first_kept = kept.first().and_then(|(at, _)| path.get(*at));
    let first_kept = first_kept.ok_or(CompactionError::TooSmall)?;

    // A turn that is cut in its middle gets a second summary, of its start.
    let splits_turn = kept.first().is_some_and(|(_, message)| !starts_turn(message));
    let turn = before.iter().rposition(|(_, message)| starts_turn(message));
    let (history, prefix) = before.split_at(turn.filter(|_| splits_turn).unwrap_or(before.len()));
    // Copies, because the plan outlives the borrow of the transcript.
    let messages = |items: &[Item<'_>]| items.iter().map(|item| Message::clone(&item.1)).collect();

    let mut plan = Plan {
        first_kept_entry_id: first_kept.id.clone(),
        tokens_before,
        history: messages(history),
        turn_prefix: messages(prefix),
        previous_summary: None,
        read_files: BTreeSet::new(),
        modified_files: BTreeSet::new(),
    };
    if let Some(EntryKind::Compaction { summary, details, .. }) =
        last_compaction.and_then(|at| path.get(at)).map(|entry| &entry.kind)
    {
        plan.previous_summary = Some(prompts::without_files(summary).to_owned());
        plan.add_earlier_files(details.as_ref());
    }
    before.iter().for_each(|(_, message)| plan.add_files(message));
    Ok(plan)
}

/// Returns the index of the first kept message. `None` if nothing is before it.
fn cut_point(items: &[Item<'_>], keep_recent_tokens: u64) -> Option<usize> {
    let mut tokens = 0_u64;
    let enough = items.iter().rposition(|(_, message)| {
        tokens = tokens.saturating_add(message_tokens(message));
        tokens >= keep_recent_tokens
    })?;

    // Providers refuse a result without its call, so a result cannot be first.
    let is_valid = |at: &usize| {
        items.get(*at).is_some_and(|(_, message)| {
            !matches!(**message, Message::ToolResult(_) | Message::Other(_))
        })
    };
    // A huge last result stays with its call.
    let cut = (enough..items.len()).find(is_valid).or_else(|| (0..enough).rfind(is_valid))?;
    (cut > 0).then_some(cut)
}

/// Whether a message is not the model's, so that it can start a turn.
fn starts_turn(message: &Message) -> bool {
    !matches!(message, Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_))
}

impl Plan {
    /// Returns the entry with the summary, made of the answers to [`summary_prompts`].
    #[must_use]
    pub fn entry(
        &self,
        history: Option<&str>,
        turn_prefix: Option<&str>,
        usage: Option<Usage>,
    ) -> EntryKind {
        EntryKind::Compaction {
            summary: prompts::joined(self, history, turn_prefix),
            first_kept_entry_id: self.first_kept_entry_id.clone(),
            tokens_before: self.tokens_before,
            details: Some(json!({
                "readFiles": self.read_files,
                "modifiedFiles": self.modified_files,
            })),
            usage,
        }
    }

    fn add_earlier_files(&mut self, details: Option<&Value>) {
        let files = |name: &str| {
            let files = details.and_then(|it| it.get(name)).and_then(Value::as_array);
            files.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned)
        };
        self.read_files.extend(files("readFiles").take(MAX_FILES));
        self.modified_files.extend(files("modifiedFiles").take(MAX_FILES));
    }

    fn add_files(&mut self, message: &Message) {
        let Message::Assistant(message) = message else { return };
        for call in message.tool_calls() {
            let tool = find_spelling(&call.name).filter(|tool| tool.file.is_some());

            // Models use both names.
            let Some(tool) = tool else { continue };
            let path =
                ["path", "file_path"].iter().find_map(|key| call.arguments.get(*key)?.as_str());
            let Some(path) = path.filter(|it| !it.is_empty()) else { continue };

            // A file that was changed is in one list only.
            if !tool.reads_only {
                self.read_files.remove(path);
                if self.modified_files.len() < MAX_FILES {
                    self.modified_files.insert(path.to_owned());
                }
            } else if self.read_files.len() < MAX_FILES && !self.modified_files.contains(path) {
                self.read_files.insert(path.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests;
