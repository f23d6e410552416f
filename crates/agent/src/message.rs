//! Messages of a conversation, in the shapes of Pi's session files and events.

use quackd_protocol::model::Price;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A message. Unknown roles are kept as they are, so that a file of a newer Pi loses nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role")]
pub enum Message {
    /// The user, or text that this program adds in the user's name.
    #[serde(rename = "user")]
    User(UserMessage),
    /// The model.
    #[serde(rename = "assistant")]
    Assistant(AssistantMessage),
    /// Result of a tool call.
    #[serde(rename = "toolResult")]
    ToolResult(ToolResultMessage),
    /// A command that the user ran, with its output.
    #[serde(rename = "bashExecution")]
    BashExecution(BashExecution),
    /// A message of an extension.
    #[serde(rename = "custom")]
    Custom(CustomMessage),
    /// Summary of a branch that was left.
    #[serde(rename = "branchSummary", rename_all = "camelCase")]
    BranchSummary {
        /// The summary.
        summary: String,
        /// Id of the entry at the end of the branch.
        from_id: String,
        /// Unix time in milliseconds.
        timestamp: i64,
    },
    /// Summary of the conversation before a compaction.
    #[serde(rename = "compactionSummary", rename_all = "camelCase")]
    CompactionSummary {
        /// The summary.
        summary: String,
        /// Tokens of the context before the compaction.
        tokens_before: u64,
        /// Unix time in milliseconds.
        timestamp: i64,
    },
    /// A message of another kind, such as `system` of newer Pis. Not sent to models.
    #[serde(untagged)]
    Other(Value),
}

impl Message {
    /// Whether the message has an image for the model.
    #[must_use]
    pub fn has_image(&self) -> bool {
        let (Self::User(UserMessage { content: Content::Blocks(blocks), .. })
        | Self::Custom(CustomMessage { content: Content::Blocks(blocks), .. })
        | Self::ToolResult(ToolResultMessage { content: blocks, .. })) = self
        else {
            return false;
        };
        blocks.iter().any(|block| matches!(block, Block::Image { .. }))
    }
}

/// Content of a message of the user: a text in old files, blocks in new ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Only a text.
    Text(String),
    /// Blocks.
    Blocks(Vec<Block>),
}

impl Content {
    /// Returns the texts of all blocks, joined.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Blocks(blocks) => text_of(blocks),
        }
    }
}

/// Returns the texts of the blocks, joined.
#[must_use]
pub fn text_of(blocks: &[Block]) -> String {
    let texts = blocks.iter().filter_map(|block| match block {
        Block::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// A block of content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Block {
    /// Text.
    #[serde(rename = "text", rename_all = "camelCase")]
    Text {
        /// The text.
        text: String,
        /// The provider's signature.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text_signature: Option<String>,
    },
    /// Reasoning of the model.
    #[serde(rename = "thinking", rename_all = "camelCase")]
    Thinking {
        /// The reasoning.
        thinking: String,
        /// What the provider wants back: a signature, the name of the field, or an item as JSON.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking_signature: Option<String>,
        /// Whether the provider hides the reasoning.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        redacted: bool,
    },
    /// A call of a tool.
    #[serde(rename = "toolCall", rename_all = "camelCase")]
    ToolCall(ToolCall),
    /// An image.
    #[serde(rename = "image", rename_all = "camelCase")]
    Image {
        /// The bytes in base64.
        data: String,
        /// Such as `image/png`.
        mime_type: String,
    },
    /// A block of another kind. Not sent to models.
    #[serde(untagged)]
    Other(Value),
}

impl Block {
    /// Creates a block of text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), text_signature: None }
    }
}

/// A call of a tool by the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// The provider's id of the call.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// The arguments. Empty if the model's text was not JSON.
    pub arguments: Map<String, Value>,
    /// The provider's signature of the thought before the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought_signature: Option<String>,
    /// Error of the model's text, if it was not a JSON object. The call must not run. Never in files or events.
    #[serde(skip)]
    pub invalid: Option<String>,
}

/// A message of the user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserMessage {
    /// Text and images.
    pub content: Content,
    /// Unix time in milliseconds.
    pub timestamp: i64,
}

/// A message of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssistantMessage {
    /// Text, reasoning and calls.
    pub content: Vec<Block>,
    /// API of the provider.
    pub api: String,
    /// Name of the provider, as in the configuration.
    pub provider: String,
    /// Id of the model at its provider.
    pub model: String,
    /// Tokens and cost.
    #[serde(default)]
    pub usage: Usage,
    /// Reason for the end of the message.
    pub stop_reason: StopReason,
    /// The provider's name of the reason, if it stopped the answer, such as `refusal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_stop_reason: Option<String>,
    /// Error, if it failed or was aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Unix time in milliseconds.
    pub timestamp: i64,
    /// The provider's id of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// Time until the end of the answer, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Whether the provider has refused images of the request. Later requests to this model have none of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub images_refused: bool,
}

impl AssistantMessage {
    /// Returns the calls of tools, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(|block| match block {
            Block::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

/// Reason for the end of a message of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// The answer is complete.
    Stop,
    /// The limit of tokens was reached.
    Length,
    /// The model calls tools.
    ToolUse,
    /// The provider or the connection failed.
    Error,
    /// The user aborted.
    Aborted,
    /// Another reason, of a newer Pi.
    #[serde(other)]
    Other,
}

/// Tokens and cost of an answer. `input` has no cached tokens. `output` has the tokens of reasoning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Input that no cache had.
    pub input: u64,
    /// Output, with reasoning.
    pub output: u64,
    /// Input from a cache.
    pub cache_read: u64,
    /// Input written to a cache.
    pub cache_write: u64,
    /// Tokens of reasoning, a part of `output`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// Sum of the first four.
    pub total_tokens: u64,
    /// Cost in US dollars.
    pub cost: Cost,
}

/// Cost in US dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cost {
    /// Input that no cache had.
    pub input: f64,
    /// Output.
    pub output: f64,
    /// Input from a cache.
    pub cache_read: f64,
    /// Input written to a cache.
    pub cache_write: f64,
    /// Sum.
    pub total: f64,
    /// Whether the cost is unknown, or a part of it. The numbers are then too low.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
}

/// Returns a cost for display.
#[must_use]
pub fn cost_text(total: f64, is_unknown: bool) -> String {
    if !is_unknown {
        format!("${total:.4}")
    } else if total < 0.000_05 {
        // Four digits would show it as zero.
        "unknown".to_owned()
    } else {
        format!("unknown, at least ${total:.4}")
    }
}

impl Usage {
    /// Computes the sum and the cost. `reported` is the cost that the provider has sent: it counts.
    #[must_use]
    pub fn priced(self, price: Price, reported: Option<f64>) -> Self {
        // Token counts are far below 2^52.
        #[expect(clippy::cast_precision_loss, reason = "see above")]
        let of = |tokens: u64, price: f64| tokens as f64 * price / 1_000_000.0;
        let prices = price.cost().unwrap_or_default();

        let mut cost = Cost {
            input: of(self.input, prices.input),
            output: of(self.output, prices.output),
            cache_read: of(self.cache_read, prices.cache_read),
            cache_write: of(self.cache_write, prices.cache_write),
            total: 0.0,
            unknown: false,
        };

        let tokens = [self.input, self.output, self.cache_read, self.cache_write];
        let total_tokens = tokens.into_iter().fold(0, u64::saturating_add);
        cost.total =
            reported.unwrap_or(cost.input + cost.output + cost.cache_read + cost.cache_write);
        cost.unknown = total_tokens != 0 && price.cost().is_none() && reported.is_none();
        Self { total_tokens, cost, ..self }
    }
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, more: Self) {
        self.input += more.input;
        self.output += more.output;
        self.cache_read += more.cache_read;
        self.cache_write += more.cache_write;
        self.total += more.total;
        self.unknown |= more.unknown;
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.input = self.input.saturating_add(more.input);
        self.output = self.output.saturating_add(more.output);
        self.cache_read = self.cache_read.saturating_add(more.cache_read);
        self.cache_write = self.cache_write.saturating_add(more.cache_write);
        self.total_tokens = self.total_tokens.saturating_add(more.total_tokens);
        self.cost += more.cost;
    }
}

/// Result of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResultMessage {
    /// Id of the call that this result belongs to.
    pub tool_call_id: String,
    /// Name of the tool, as the model has written it.
    pub tool_name: String,
    /// Text and images.
    pub content: Vec<Block>,
    /// Facts for clients, such as the diff of an edit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Whether the tool failed.
    pub is_error: bool,
    /// Unix time in milliseconds.
    pub timestamp: i64,
}

/// A command that the user ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BashExecution {
    /// The command line, as the user typed it.
    pub command: String,
    /// Output of both streams, in their order.
    pub output: String,
    /// Exit code. `None` if it was aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Whether the user aborted it.
    pub cancelled: bool,
    /// Whether the output is incomplete.
    pub truncated: bool,
    /// File with the whole output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_output_path: Option<String>,
    /// Whether the model does not get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_from_context: Option<bool>,
    /// Unix time in milliseconds.
    pub timestamp: i64,
}

/// A message of an extension.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomMessage {
    /// The extension's name of its kind.
    pub custom_type: String,
    /// Text and images, sent to models in the user's name.
    pub content: Content,
    /// Whether clients display it.
    #[serde(default)]
    pub display: bool,
    /// Facts for the extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Unix time in milliseconds.
    pub timestamp: i64,
}
