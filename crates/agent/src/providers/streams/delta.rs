//! Changes of an answer, and the complete answer.

use crate::message::{Block, StopReason, ToolCall, Usage};
use crate::providers::errors::ProviderError;

/// One change of the answer. `content_index` is the index into [`Finished::content`].
///
/// A block ends before the next one starts. If a provider then adds to an earlier call, as some do with parallel calls,
/// that call has further deltas and one more end, which counts.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "`delta` is the added text, `content` the whole text")]
pub enum Delta {
    /// A text starts.
    TextStart { content_index: usize },
    /// A text grows.
    TextDelta { content_index: usize, delta: String },
    /// A text is complete.
    TextEnd { content_index: usize, content: String },
    /// Reasoning starts.
    ThinkingStart { content_index: usize },
    /// Reasoning grows.
    ThinkingDelta { content_index: usize, delta: String },
    /// Reasoning is complete. Hidden reasoning has no text.
    ThinkingEnd { content_index: usize, content: String },
    /// A call starts.
    ToolCallStart { content_index: usize, id: String, name: String },
    /// The JSON of the arguments grows.
    ToolCallDelta { content_index: usize, delta: String },
    /// A call is complete.
    ToolCallEnd { content_index: usize, tool_call: ToolCall },
    /// Tokens so far, priced. The last one counts.
    Usage(Usage),
}

impl Delta {
    /// Adds the next delta to this one, if both add text to the same block. Returns false if they do not.
    pub fn join(&mut self, next: &Self) -> bool {
        let (text, more, same) = match (self, next) {
            (
                Self::TextDelta { content_index: i, delta: text },
                Self::TextDelta { content_index: j, delta: more },
            )
            | (
                Self::ThinkingDelta { content_index: i, delta: text },
                Self::ThinkingDelta { content_index: j, delta: more },
            )
            | (
                Self::ToolCallDelta { content_index: i, delta: text },
                Self::ToolCallDelta { content_index: j, delta: more },
            ) => (text, more, i == j),
            _ => return false,
        };

        if same {
            text.push_str(more);
        }
        same
    }
}

/// The parts of the message.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// Text, reasoning and calls. Unless the answer is complete, every call is invalid.
    pub content: Vec<Block>,
    /// Tokens and cost.
    pub usage: Usage,
    /// `Error` exactly if there is no complete answer and nothing was aborted.
    pub stop_reason: StopReason,
    /// The provider's name of the reason, if it stopped the answer, such as `refusal`.
    pub raw_stop_reason: Option<String>,
    /// The failure. With another `stop_reason` than `Error` only of kind
    /// [`crate::providers::errors::ErrorKind::Overflow`]: the provider has cut the context without reporting it.
    pub error: Option<ProviderError>,
    /// Whether the text is the model's refusal to answer, as OpenAI marks it.
    pub is_refusal: bool,
    /// The provider's id of the answer.
    pub response_id: Option<String>,
    /// Whether the provider has reported a failure before any content, so that it has generated nothing.
    pub has_refused: bool,
    /// Whether the body had any byte.
    pub any_bytes: bool,
}
