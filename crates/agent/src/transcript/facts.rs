//! Facts about a session: name, counts, last answer, and the turn that a crash interrupted.

use super::Transcript;
use super::entry::EntryKind;
use crate::message::{Message, StopReason, ToolCall, Usage, cost_text, text_of};
use serde::Serialize;
use std::collections::HashSet;

/// Counts of the whole file, with all branches. A compaction never lowers them. Serialized as in `get_session_stats`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Messages of the user, without commands and messages of extensions.
    pub user_messages: u64,
    /// Messages of models, also failed and aborted ones.
    pub assistant_messages: u64,
    /// Calls in the messages of models, also calls that did not run.
    pub tool_calls: u64,
    /// Results, also of calls that did not run.
    pub tool_results: u64,
    /// Messages of all roles.
    pub total_messages: u64,
    /// Tokens of all answers and summaries.
    pub tokens: Tokens,
    /// Cost of all answers and summaries in US dollars.
    pub cost: f64,
    /// Whether the cost of one of them is unknown. `cost` is then too low.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cost_unknown: bool,
}

/// Tokens of a [`Stats`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tokens {
    /// Input that no cache had.
    pub input: u64,
    /// Output of the model, with its reasoning.
    pub output: u64,
    /// Input from a cache.
    pub cache_read: u64,
    /// Input written to a cache.
    pub cache_write: u64,
    /// Sum of the other members.
    pub total: u64,
}

impl Stats {
    /// Returns the cost for display.
    #[must_use]
    pub fn cost_text(&self) -> String {
        cost_text(self.cost, self.cost_unknown)
    }

    fn add_usage(&mut self, usage: &Usage) {
        let parts = [usage.input, usage.output, usage.cache_read, usage.cache_write];
        let tokens = &mut self.tokens;
        let sums = [
            &mut tokens.input,
            &mut tokens.output,
            &mut tokens.cache_read,
            &mut tokens.cache_write,
        ];

        for (sum, part) in sums.into_iter().zip(parts) {
            *sum = sum.saturating_add(part);
            tokens.total = tokens.total.saturating_add(part);
        }

        self.cost += usage.cost.total;
        self.cost_unknown |= usage.cost.unknown;
    }
}

impl EntryKind {
    /// Returns the tokens and the cost of the requests that led to the entry.
    #[must_use]
    pub fn usage(&self) -> Option<&Usage> {
        match self {
            Self::Message(Message::Assistant(message)) => Some(&message.usage),
            Self::Usage { usage }
            | Self::Compaction { usage: Some(usage), .. }
            | Self::BranchSummary { usage: Some(usage), .. } => Some(usage),
            _ => None,
        }
    }
}

/// A turn without an end, because the agent crashed or was killed.
#[derive(Debug, Clone, PartialEq)]
pub struct Interrupted {
    /// Entry with the last message of the turn.
    pub entry_id: String,
    /// Calls without a result. Each needs an error result before the next request. Empty if the answer of the model is
    /// missing.
    pub calls: Vec<ToolCall>,
}

impl Transcript {
    /// Returns the last name that was given to the session.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let name = self.entries.iter().rev().find_map(|entry| match &entry.kind {
            EntryKind::SessionInfo { name } => Some(name.trim()),
            _ => None,
        });
        name.filter(|it| !it.is_empty())
    }

    /// Returns the counts of the whole file, with the branches that were left: they cost as well.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for entry in &self.entries {
            if let EntryKind::Message(message) = &entry.kind {
                stats.total_messages += 1;
                match message {
                    Message::User(_) => stats.user_messages += 1,
                    Message::ToolResult(_) => stats.tool_results += 1,
                    Message::Assistant(message) => {
                        stats.assistant_messages += 1;
                        stats.tool_calls += message.tool_calls().count() as u64;
                    }
                    _ => {}
                }
            }

            if let Some(usage) = entry.kind.usage() {
                stats.add_usage(usage);
            }
        }
        stats
    }

    /// Returns the unfinished turn at the end of the current branch. A turn is finished by an answer without calls, by an
    /// error and by an abort.
    #[must_use]
    pub fn interrupted(&self) -> Option<Interrupted> {
        let path = self.path();
        let mut results = HashSet::new();
        let mut last = None;
        let mut has_prompt = false;

        for entry in path.iter().rev() {
            let EntryKind::Message(message) = &entry.kind else { continue };
            match message {
                Message::User(_) => has_prompt = true,
                Message::ToolResult(result) => {
                    results.insert(result.tool_call_id.as_str());
                }
                Message::Assistant(message) => {
                    if matches!(message.stop_reason, StopReason::Error | StopReason::Aborted) {
                        break;
                    }
                    // A result after a later prompt would be in the wrong place.
                    let is_open =
                        |call: &&ToolCall| !has_prompt && !results.contains(call.id.as_str());
                    let calls: Vec<_> = message.tool_calls().filter(is_open).cloned().collect();
                    let entry_id = last.unwrap_or(entry.id.as_str()).to_owned();
                    return (last.is_some() || !calls.is_empty())
                        .then_some(Interrupted { entry_id, calls });
                }
                // Neither commands of the user nor messages of extensions start a turn.
                _ => continue,
            }
            last = last.or(Some(entry.id.as_str()));
        }
        Some(Interrupted { entry_id: last?.to_owned(), calls: Vec::new() })
    }

    /// Returns the text of the last answer on the current branch that has a text or is complete.
    #[must_use]
    pub fn last_assistant_text(&self) -> Option<String> {
        self.path().iter().rev().find_map(|entry| match &entry.kind {
            EntryKind::Message(Message::Assistant(message))
                if message.stop_reason != StopReason::Aborted || !message.content.is_empty() =>
            {
                Some(text_of(&message.content).trim().to_owned())
            }
            _ => None,
        })
    }
}
