//! Prepares a conversation for a request, as every API requires it. [`request`](super::request) then words it.

use super::models::Quirks;
use crate::message::{AssistantMessage, BashExecution, Block, Content, Message, StopReason};
use quackd_protocol::model::{InputKind, MAX_MODEL_REQUEST_BYTES, ModelApi, ModelInfo};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Maximum length of a tool's name that OpenAI accepts, in characters.
const MAX_TOOL_NAME: usize = 64;

/// Maximum size of the images in a request, in bytes of base64. The rest of
/// [`MAX_MODEL_REQUEST_BYTES`] is for texts, which a summary can shorten.
const MAX_IMAGE_BYTES: usize = MAX_MODEL_REQUEST_BYTES / 4 * 3;

/// Texts in place of dropped messages of the model.
const INTERRUPTED: &str = "[The user interrupted this turn.]";
const FAILED: &str = "[This turn has failed. The user saw the error.]";

/// A message as providers accept it. Between two of the model are its results, in any order, then at most one of the
/// user.
#[derive(Debug, Clone, PartialEq)]
pub enum Turn<'a> {
    /// The user, and all texts that this program adds in the user's name. Never empty.
    User(Vec<Part<'a>>),
    /// The model. Never empty.
    Assistant(Vec<Said<'a>>),
    /// The result of a call of the last message of the model.
    ToolResult {
        /// Id of the call, as [`Said::Call`] has it.
        call_id: String,
        /// Name of the tool.
        name: Cow<'a, str>,
        /// Text and images. May be empty.
        parts: Vec<Part<'a>>,
        /// Whether the tool failed.
        is_error: bool,
    },
}

/// Text or an image for the model.
#[derive(Debug, Clone, PartialEq)]
pub enum Part<'a> {
    /// Text, not blank.
    Text(Cow<'a, str>),
    /// An image, only for models that accept images.
    Image {
        /// The bytes in base64.
        data: &'a str,
        /// Such as `image/png`.
        mime_type: &'a str,
    },
}

/// A part of a message of the model.
#[derive(Debug, Clone, PartialEq)]
pub enum Said<'a> {
    /// Text, not blank.
    Text {
        /// The text.
        text: &'a str,
        /// The provider's signature, if this model wrote the text.
        signature: Option<&'a str>,
    },
    /// Reasoning of this model.
    Thinking {
        /// The reasoning.
        text: &'a str,
        /// Signature, not empty.
        signature: &'a str,
        /// Whether the provider hides the reasoning.
        is_redacted: bool,
    },
    /// A call.
    Call {
        /// Id that the API accepts, unique in the conversation.
        id: String,
        /// Id of the item of responses, if this model made the call.
        item_id: Option<&'a str>,
        /// Name of the tool.
        name: Cow<'a, str>,
        /// The arguments.
        arguments: &'a Map<String, Value>,
        /// Signature of the thought before the call, if this model made it.
        signature: Option<&'a str>,
    },
}

/// Prepares messages for this model.
///
/// - Drops messages of the model that failed or were aborted, blank texts, and results without their call. If a message
///   of the user follows, the model reads in place of a dropped message that the turn was interrupted or has failed, so
///   that the two messages of the user are not read as one.
/// - Adds an error as the result of each call that has none, and moves results directly after their calls.
/// - Joins consecutive messages of the user; commands and summaries become texts of the user.
/// - Turns the reasoning of other models into text, and drops their hidden reasoning.
/// - Replaces call ids that the API does not accept, or that occur twice.
/// - Replaces images by a note if the model does not accept them or its provider has refused them, and older ones that do
///   not fit into a request.
///
/// Strings of Rust have no lone surrogates, so none are removed here.
#[must_use]
pub fn prepare<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
    model: &ModelInfo,
) -> Vec<Turn<'a>> {
    let messages: Vec<&Message> = messages.into_iter().collect();
    let refused = refused_images(&messages, model);
    let mut preparation = Preparation {
        model,
        images: ImageUse::Sent,
        mistral_ids: model.api == ModelApi::OpenAiCompletions && Quirks::of(model).mistral_ids,
        turns: Vec::new(),
        open_calls: Vec::new(),
        user: Vec::new(),
        dropped: None,
        ids: BTreeSet::new(),
    };

    let accepts_images = model.input.contains(&InputKind::Image);
    for (at, message) in messages.into_iter().enumerate() {
        preparation.images = match (accepts_images, refused.contains(&at)) {
            (false, _) => ImageUse::NotAccepted,
            (true, true) => ImageUse::Refused,
            (true, false) => ImageUse::Sent,
        };
        preparation.add(message);
    }

    preparation.end_turn();
    // Last, when the size of all images is known.
    let mut turns = preparation.turns;
    limit_images(&mut turns);
    turns
}

/// Whether a request with these messages has images.
#[must_use]
pub fn has_images<'a>(messages: impl IntoIterator<Item = &'a Message>, model: &ModelInfo) -> bool {
    prepare(messages, model).iter().any(|turn| match turn {
        Turn::User(parts) | Turn::ToolResult { parts, .. } => {
            parts.iter().any(|part| matches!(part, Part::Image { .. }))
        }
        Turn::Assistant(_) => false,
    })
}

/// Returns the positions of the messages whose images the model's provider has refused: those since the model's last
/// answer, or all if the provider has refused a request without them too.
fn refused_images(messages: &[&Message], model: &ModelInfo) -> BTreeSet<usize> {
    let (mut refused, mut answered, mut new) = (BTreeSet::new(), Vec::new(), Vec::new());
    let mut is_repeated = false;
    for (at, message) in messages.iter().enumerate() {
        match message {
            Message::Assistant(answer) if !is_by(answer, model) => {}
            Message::Assistant(answer) if answer.images_refused => {
                // A second refusal without a new image is about an older one.
                if new.is_empty() || is_repeated {
                    refused.extend(answered.drain(..));
                }
                refused.extend(new.drain(..));
                is_repeated = true;
            }
            // Failures for other reasons are not about the images.
            Message::Assistant(AssistantMessage {
                stop_reason: StopReason::Error | StopReason::Aborted,
                ..
            }) => {}
            Message::Assistant(_) => {
                answered.append(&mut new);
                is_repeated = false;
            }
            _ if message.has_image() => new.push(at),
            _ => {}
        }
    }
    refused
}

/// Whether this model has written the message.
fn is_by(message: &AssistantMessage, model: &ModelInfo) -> bool {
    message.model == model.id
        && message.provider == model.provider
        && message.api == model.api.name()
}

/// Replaces the images beyond [`MAX_IMAGE_BYTES`] by a note. The newest images stay.
fn limit_images(turns: &mut [Turn<'_>]) {
    let mut room = MAX_IMAGE_BYTES;
    let parts = turns.iter_mut().rev().flat_map(|turn| match turn {
        Turn::User(parts) | Turn::ToolResult { parts, .. } => parts.iter_mut().rev(),
        Turn::Assistant(_) => Default::default(),
    });

    for part in parts {
        let Part::Image { data, .. } = part else { continue };
        match room.checked_sub(data.len()) {
            Some(rest) => room = rest,
            None => *part = Part::Text("(image left out: the request is too long with it)".into()),
        }
    }
}

/// Treatment of the images of a message.
#[derive(Debug, Clone, Copy)]
enum ImageUse {
    Sent,
    /// The model accepts text only.
    NotAccepted,
    /// The provider has refused them.
    Refused,
}

struct Preparation<'m, 'a> {
    model: &'m ModelInfo,
    /// Use of the images of the current message.
    images: ImageUse,
    mistral_ids: bool,
    turns: Vec<Turn<'a>>,
    /// Calls without a result: their id in the history, their id in the request, their tool.
    open_calls: Vec<(&'a str, String, Cow<'a, str>)>,
    /// Parts of the user since the last message of the model.
    user: Vec<Part<'a>>,
    /// Text for the last message of the model, if that was dropped.
    dropped: Option<&'static str>,
    /// Ids of all calls in the request.
    ids: BTreeSet<String>,
}

impl<'a> Preparation<'_, 'a> {
    fn add(&mut self, message: &'a Message) {
        match message {
            Message::Assistant(message) => self.add_assistant(message),
            Message::ToolResult(result) => {
                // A result without its call is dropped.
                let is_meant = |call: &(&str, String, Cow<'_, str>)| call.0 == result.tool_call_id;
                if let Some(at) = self.open_calls.iter().position(is_meant) {
                    let (_, call_id, name) = self.open_calls.remove(at);
                    let parts = self.parts(&result.content);
                    let is_error = result.is_error;
                    self.turns.push(Turn::ToolResult { call_id, name, parts, is_error });
                }
            }
            Message::User(message) => {
                self.mark_dropped();
                self.add_content(&message.content);
            }
            Message::Custom(message) => self.add_content(&message.content),
            Message::BashExecution(message) if message.exclude_from_context == Some(true) => {}
            Message::BashExecution(message) => {
                self.user.push(Part::Text(command_text(message).into()));
            }
            Message::BranchSummary { summary, .. } => {
                let text =
                    "This is a summary of another branch of the conversation, which the user left:";
                self.user.push(summary_text(text, summary));
            }
            Message::CompactionSummary { summary, .. } => {
                let text = "This summary replaces the earlier part of the conversation:";
                self.user.push(summary_text(text, summary));
            }
            Message::Other(_) => {}
        }
    }

    fn add_content(&mut self, content: &'a Content) {
        match content {
            Content::Text(text) if text.trim().is_empty() => {}
            Content::Text(text) => self.user.push(Part::Text(text.into())),
            Content::Blocks(blocks) => {
                let parts = self.parts(blocks);
                self.user.extend(parts);
            }
        }
    }

    fn parts(&self, blocks: &'a [Block]) -> Vec<Part<'a>> {
        let part = |block: &'a Block| match block {
            Block::Text { text, .. } if !text.trim().is_empty() => Some(Part::Text(text.into())),
            Block::Image { data, mime_type } => Some(match self.images {
                ImageUse::Sent => Part::Image { data, mime_type },
                ImageUse::NotAccepted => {
                    Part::Text("(image left out: this model accepts text only)".into())
                }
                ImageUse::Refused => Part::Text("(image left out: the provider refused it)".into()),
            }),
            _ => None,
        };
        blocks.iter().filter_map(part).collect()
    }

    fn add_assistant(&mut self, message: &'a AssistantMessage) {
        self.dropped = match message.stop_reason {
            StopReason::Error => Some(FAILED),
            StopReason::Aborted => Some(INTERRUPTED),
            _ => None,
        };
        // Providers refuse an incomplete message, and calls of it did not run.
        if self.dropped.is_some() {
            return;
        }

        let is_same = is_by(message, self.model);
        let (mut said, mut calls) = (Vec::new(), Vec::new());
        for block in &message.content {
            match block {
                Block::Text { text, text_signature } if !text.trim().is_empty() => {
                    let signature = text_signature.as_deref().filter(|_| is_same);
                    said.push(Said::Text { text, signature });
                }
                Block::Thinking { thinking: text, thinking_signature, redacted } => {
                    let signature = thinking_signature.as_deref().unwrap_or_default();
                    // Only the model that made it accepts its signature.
                    if is_same && !signature.is_empty() {
                        said.push(Said::Thinking { text, signature, is_redacted: *redacted });
                    } else if !redacted && !text.trim().is_empty() {
                        said.push(Said::Text { text, signature: None });
                    }
                }
                Block::ToolCall(call) => {
                    let id = self.new_id(&call.id);
                    // A name or an id from another provider may be refused.
                    let name = plain_name(&call.name);
                    calls.push((&*call.id, id.clone(), name.clone()));
                    let item_id = call.id.split_once('|').map(|(_, item_id)| item_id);
                    let item_id = item_id.filter(|_| is_same);
                    let arguments = &call.arguments;
                    let signature = call.thought_signature.as_deref().filter(|_| is_same);
                    said.push(Said::Call { id, item_id, name, arguments, signature });
                }
                _ => {}
            }
        }

        if !said.is_empty() {
            self.end_turn();
            self.open_calls = calls;
            self.turns.push(Turn::Assistant(said));
        }
    }

    /// Adds the text for a dropped message of the model between two messages of the user.
    fn mark_dropped(&mut self) {
        let Some(text) = self.dropped.take() else { return };
        self.end_turn();
        // No API accepts a conversation that begins with the model.
        if !self.turns.is_empty() {
            self.turns.push(Turn::Assistant(vec![Said::Text { text, signature: None }]));
        }
    }

    /// Adds the missing results and the parts of the user.
    fn end_turn(&mut self) {
        for (_, call_id, name) in self.open_calls.drain(..) {
            let parts = vec![Part::Text("No result provided".into())];
            self.turns.push(Turn::ToolResult { call_id, name, parts, is_error: true });
        }
        if !self.user.is_empty() {
            self.turns.push(Turn::User(std::mem::take(&mut self.user)));
        }
    }

    /// Returns an id for the request. The same history always gives the same ids.
    fn new_id(&mut self, id: &str) -> String {
        let (base, limit) = match self.model.api {
            ModelApi::OpenAiCompletions if self.mistral_ids => (mistral_id(id), 9),
            ModelApi::OpenAiCompletions => (plain_id(id), 40),
            ModelApi::OpenAiResponses | ModelApi::AnthropicMessages => (plain_id(id), 64),
        };

        let cut = |length: usize| base.chars().take(length).collect::<String>();

        let mut id = cut(limit);
        // Ends, because each number gives another id and there are finitely many calls.
        for number in 2_u64.. {
            if self.ids.insert(id.clone()) {
                break;
            }
            let suffix = number.to_string();
            id = cut(limit.saturating_sub(suffix.len())) + &suffix;
        }
        id
    }
}

/// Returns a name of a tool that every API accepts. A model may have called a tool of another name, and providers refuse all
/// later requests of a conversation with it.
fn plain_name(name: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if (1..=MAX_TOOL_NAME).contains(&name.len()) && name.chars().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let plain = name.trim().chars().map(|c| if is_plain(c) { c } else { '_' });
    let plain: String = plain.take(MAX_TOOL_NAME).collect();
    if plain.is_empty() { Cow::Borrowed("unknown_tool") } else { Cow::Owned(plain) }
}

/// Returns the id before a `|`, with `_` for characters other than ASCII letters, digits, `-` and `_`.
fn plain_id(id: &str) -> String {
    let id = id.split('|').next().unwrap_or_default();
    let accepted = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let id: String = id.chars().map(|c| if accepted(c) { c } else { '_' }).collect();
    if id.is_empty() { "call".to_owned() } else { id }
}

/// Returns an id of 9 letters and digits: the same one, or a hash (FNV-1a).
fn mistral_id(id: &str) -> String {
    if id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return id.to_owned();
    }
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);

    let mut rest = id.bytes().fold(0xcbf2_9ce4_8422_2325, hash);

    let mut digit = || {
        let value = u32::try_from(rest % 36).unwrap_or_default();
        rest /= 36;
        char::from_digit(value, 36).unwrap_or('0')
    };
    std::iter::repeat_with(&mut digit).take(9).collect()
}

fn summary_text<'a>(text: &str, summary: &str) -> Part<'a> {
    Part::Text(format!("{text}\n\n<summary>\n{summary}\n</summary>").into())
}

fn command_text(execution: &BashExecution) -> String {
    let output = if execution.output.trim().is_empty() {
        "(no output)"
    } else {
        execution.output.trim_end()
    };

    let mut text =
        format!("The user ran a command:\n\n```\n$ {}\n{output}\n```", execution.command);

    match execution.exit_code {
        _ if execution.cancelled => text.push_str("\n\nThe user canceled the command."),
        Some(code) if code != 0 => text.push_str(&format!("\n\nThe exit code was {code}.")),
        _ => {}
    }

    if execution.truncated {
        text.push_str("\n\nThe output is incomplete.");
        if let Some(path) = &execution.full_output_path {
            text.push_str(&format!(" All of it is in {path}."));
        }
    }
    text
}
