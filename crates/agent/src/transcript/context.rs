//! The messages that a model gets from a session file.

use super::Transcript;
use super::entry::{Entry, EntryKind};
use super::time::parse_iso_time;
use crate::message::{Content, CustomMessage, Message};
use quackd_protocol::model::ThinkingLevel;
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;

/// Settings for the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context {
    /// Provider and model of the last change or answer.
    pub model: Option<(String, String)>,
    /// The last known level.
    pub thinking: Option<ThinkingLevel>,
}

impl Transcript {
    /// Returns the settings of the current branch.
    #[must_use]
    pub fn context(&self) -> Context {
        let mut context = Context::default();
        for entry in self.path() {
            match &entry.kind {
                EntryKind::ModelChange { provider, model_id } => {
                    context.model = Some((provider.clone(), model_id.clone()));
                }
                EntryKind::Message(Message::Assistant(message)) => {
                    context.model = Some((message.provider.clone(), message.model.clone()));
                }
                EntryKind::ThinkingLevelChange { thinking_level } => {
                    context.thinking = ThinkingLevel::named(thinking_level).or(context.thinking);
                }
                _ => {}
            }
        }
        context
    }

    /// Returns the messages of the current branch for the model, beginning with the summary of the last compaction.
    #[must_use]
    pub fn messages(&self) -> Vec<Cow<'_, Message>> {
        context_entries(&self.path()).into_iter().map(|(_, message)| message).collect()
    }
}

/// Returns the messages for the model, each with the position of its entry on the path.
pub(crate) fn context_entries<'a>(path: &[&'a Entry]) -> Vec<(usize, Cow<'a, Message>)> {
    let mut edits: HashMap<&str, Option<&Value>> = HashMap::new();
    let mut compaction = None;
    for (at, entry) in path.iter().enumerate() {
        match &entry.kind {
            EntryKind::ContextEdit { target_id, replacement } => {
                edits.insert(target_id, replacement.as_ref());
            }
            EntryKind::Compaction { first_kept_entry_id, .. } => {
                compaction = Some((at, first_kept_entry_id));
            }
            _ => {}
        }
    }

    let message = |at: usize| {
        let entry: &'a Entry = path.get(at)?;
        let message = message_of(entry)?;
        match edits.get(entry.id.as_str()) {
            None => Some((at, message)),
            Some(None) => None,
            Some(Some(replacement)) => {
                Some((at, Cow::Owned(edited(message.into_owned(), replacement))))
            }
        }
    };

    // Without a compaction, the model gets the whole branch.
    let Some((compaction, kept)) = compaction else {
        return (0..path.len()).filter_map(message).collect();
    };

    let before = path.iter().take(compaction);
    let kept =
        before.enumerate().find(|(_, entry)| entry.id == *kept).map_or(compaction, |(at, _)| at);
    // The summary comes before the kept messages. An older compaction among them is a part of the summary.
    let is_older = |at: &usize| path.get(*at).is_some_and(|entry| is_compaction(entry));
    let kept = (kept..compaction).filter(|at| !is_older(at));
    let order = std::iter::once(compaction).chain(kept).chain(compaction + 1..path.len());
    order.filter_map(message).collect()
}

/// Whether the entry is a compaction.
pub(crate) fn is_compaction(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::Compaction { .. })
}

/// Returns the message that an entry adds to the context.
fn message_of(entry: &Entry) -> Option<Cow<'_, Message>> {
    let timestamp = || parse_iso_time(&entry.timestamp).unwrap_or_default();
    let message = match &entry.kind {
        EntryKind::Message(message) => return Some(Cow::Borrowed(message)),
        EntryKind::Compaction { summary, tokens_before, .. } => Message::CompactionSummary {
            summary: summary.clone(),
            tokens_before: *tokens_before,
            timestamp: timestamp(),
        },
        EntryKind::BranchSummary { from_id, summary, .. } if !summary.is_empty() => {
            Message::BranchSummary {
                summary: summary.clone(),
                from_id: from_id.clone(),
                timestamp: timestamp(),
            }
        }
        EntryKind::CustomMessage { custom_type, content, display, details } => {
            Message::Custom(CustomMessage {
                custom_type: custom_type.clone(),
                content: content.clone(),
                display: *display,
                details: details.clone(),
                timestamp: timestamp(),
            })
        }
        // The other kinds are no part of the conversation.
        _ => return None,
    };

    Some(Cow::Owned(message))
}

/// Replaces the content of a message, if the replacement has the right form.
fn edited(mut message: Message, replacement: &Value) -> Message {
    let Some(content) = replacement.get("content").and_then(|it| Content::deserialize(it).ok())
    else {
        return message;
    };

    match (&mut message, content) {
        (Message::User(message), content) => message.content = content,
        (Message::Custom(message), content) => message.content = content,
        (Message::Assistant(message), Content::Blocks(blocks)) => message.content = blocks,
        (Message::ToolResult(message), Content::Blocks(blocks)) => message.content = blocks,
        // The content has no meaning for the other kinds.
        _ => {}
    }
    message
}
