//! Estimates of the tokens of a context.

use crate::message::{AssistantMessage, Block, Content, Message, StopReason};
use std::borrow::Borrow;

/// Estimated tokens of an image, regardless of its size.
const IMAGE_TOKENS: u64 = 1200;

/// Characters that count as one token in an estimate.
const TOKEN_CHARS: u64 = 4;

/// Returns the tokens of a context: the count of the last answer, plus an estimate for the messages after it.
///
/// A count from before the compaction is not used, because the provider counted the messages that the summary replaces.
#[must_use]
pub fn estimate_tokens<M: Borrow<Message>>(messages: &[M]) -> u64 {
    let all = || messages.iter().map(M::borrow);
    let compacted = all().rev().find_map(|message| match message {
        Message::CompactionSummary { timestamp, .. } => Some(*timestamp),
        _ => None,
    });
    let count = |message: &Message| match message {
        Message::Assistant(answer) if compacted.is_none_or(|at| answer.timestamp > at) => {
            counted(answer)
        }
        _ => None,
    };

    let last = all().enumerate().rev().find_map(|(at, message)| Some((at, count(message)?)));
    let (tokens, rest) = last.map_or((0, 0), |(at, tokens)| (tokens, at + 1));
    all().skip(rest).map(message_tokens).fold(tokens, u64::saturating_add)
}

/// Returns the tokens of the context up to this answer, as its provider counted them.
fn counted(message: &AssistantMessage) -> Option<u64> {
    if matches!(message.stop_reason, StopReason::Error | StopReason::Aborted) {
        return None;
    }
    let usage = &message.usage;
    let parts = [usage.input, usage.output, usage.cache_read, usage.cache_write];
    let sum = parts.into_iter().fold(0, u64::saturating_add);
    let total = if usage.total_tokens > 0 { usage.total_tokens } else { sum };
    (total > 0).then_some(total)
}

/// Whether a context of so many tokens leaves less than `reserve` of the window. The reserve is at most half of the
/// window. Never for an unknown window, which is 0.
#[must_use]
pub fn should_compact(tokens: u64, window: u64, reserve: u64) -> bool {
    window > 0 && tokens > window - reserve.min(window / 2)
}

/// Returns the tokens to keep in a compaction: `requested`, but at most a quarter of the window, if
/// the window is known.
#[must_use]
pub fn keep_recent_tokens(requested: u64, window: u64) -> u64 {
    if window == 0 { requested } else { requested.min(window / 4) }
}

/// Returns the estimated tokens of a message.
pub fn message_tokens(message: &Message) -> u64 {
    let chars = match message {
        Message::User(message) => content_chars(&message.content),
        Message::Custom(message) => content_chars(&message.content),
        Message::Assistant(message) => blocks_chars(&message.content),
        Message::ToolResult(message) => blocks_chars(&message.content),
        Message::BashExecution(message) if message.exclude_from_context == Some(true) => 0,
        Message::BashExecution(message) => chars(&message.command) + chars(&message.output),
        Message::BranchSummary { summary, .. } | Message::CompactionSummary { summary, .. } => {
            chars(summary)
        }
        Message::Other(_) => 0,
    };

    chars.div_ceil(TOKEN_CHARS)
}

fn content_chars(content: &Content) -> u64 {
    match content {
        Content::Text(text) => chars(text),
        Content::Blocks(blocks) => blocks_chars(blocks),
    }
}

fn blocks_chars(blocks: &[Block]) -> u64 {
    let count = |block: &Block| match block {
        Block::Text { text, .. } => chars(text),
        Block::Thinking { thinking, .. } => chars(thinking),
        Block::ToolCall(call) => {
            let arguments = serde_json::to_string(&call.arguments).unwrap_or_default();
            chars(&call.name) + chars(&arguments)
        }
        Block::Image { .. } => IMAGE_TOKENS * TOKEN_CHARS,
        Block::Other(_) => 0,
    };
    blocks.iter().map(count).sum()
}

fn chars(text: &str) -> u64 {
    text.chars().count() as u64
}
