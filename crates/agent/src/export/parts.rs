//! The current branch of a conversation as a list of parts. Both formats write the same parts.

use super::clean::{clean, clean_line};
use crate::call_view::{self, Change};
use crate::message::{AssistantMessage, Block, Content, Message, ToolCall, ToolResultMessage};
use crate::transcript::{Entry, EntryKind, Transcript};
use serde_json::Value;
use std::collections::HashMap;

/// A part of the conversation. All texts are clean, and those called a title or a name are one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Start of a message.
    Message { title: String, time: String },
    /// Words of the user, or of an extension.
    Prompt(String),
    /// Markdown of the model.
    Text(String),
    /// Reasoning of the model.
    Thinking(String),
    /// A call of a tool, or a command of the user.
    Tool(Tool),
    /// An image of a known type, in base64.
    Image { mime_type: &'static str, data: String },
    /// A change of the session.
    Note(String),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tool {
    pub(super) name: String,
    /// The command or path that the call is about. Empty if all its arguments matter.
    pub(super) subject: String,
    /// JSON, or the command of the user.
    pub(super) input: String,
    /// The lines of an edit, or those of a file that is written. Empty for other calls.
    pub(super) changes: Vec<Change>,
    /// `None` if the call has no result.
    pub(super) output: Option<String>,
    pub(super) is_error: bool,
}

/// Maximum length of a title that is taken from a prompt, in characters.
const MAX_TITLE: usize = 80;

/// Types of images that browsers show and that contain no scripts.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Returns the names and values of facts about the session, for the head of a document.
pub(super) fn facts(transcript: &Transcript) -> Vec<(&'static str, String)> {
    let (header, stats) = (transcript.header(), transcript.stats());
    let model = transcript.context().model;
    let model = model.map(|(provider, model)| clean_line(&format!("{provider}/{model}")));

    let mut facts = vec![
        ("Session", clean_line(&header.id)),
        ("Created", clean_line(&header.timestamp)),
        ("Directory", clean_line(&header.cwd)),
    ];

    facts.extend(model.map(|name| ("Model", name)));
    facts.push(("Messages", stats.total_messages.to_string()));
    facts.push(("Tokens", stats.tokens.total.to_string()));
    // A session whose providers count no tokens has no cost that is known.
    if stats.tokens.total != 0 {
        facts.push(("Cost", stats.cost_text()));
    }
    facts
}

/// Returns the title of the document: the session's name, or else the start of its first prompt.
pub(super) fn title(transcript: &Transcript) -> String {
    let name = transcript.name().map(clean_line).filter(|it| !it.is_empty());

    let by_prompt = || {
        let mut entries = transcript.path().into_iter();
        entries.find_map(|entry| match &entry.kind {
            EntryKind::Message(Message::User(message)) => first_words(&message.content.text()),
            _ => None,
        })
    };

    name.or_else(by_prompt).unwrap_or_else(|| {
        // The conversation has no words yet.
        format!("Session {}", clean_line(&transcript.header().id))
    })
}

/// Returns the beginning of a prompt's first line, at most [`MAX_TITLE`] characters. `None` without one.
fn first_words(prompt: &str) -> Option<String> {
    let line = clean_line(prompt.trim().lines().next()?);
    let cut = line.char_indices().nth(MAX_TITLE).and_then(|(at, _)| line.get(..at));
    let title = cut.map_or_else(|| line.clone(), |cut| format!("{}…", cut.trim_end()));
    (!title.is_empty()).then_some(title)
}

/// Returns the parts of the current branch, also those before a compaction.
pub(super) fn parts(transcript: &Transcript) -> Vec<Part> {
    let mut parts = Parts::default();
    transcript.path().into_iter().for_each(|entry| parts.entry(entry));
    parts.list
}

#[derive(Default)]
struct Parts<'a> {
    list: Vec<Part>,
    /// Positions of calls without a result, by the id of the call.
    calls: HashMap<&'a str, usize>,
}

impl<'a> Parts<'a> {
    fn entry(&mut self, entry: &'a Entry) {
        let note = match &entry.kind {
            EntryKind::Message(message) => return self.message(message, &entry.timestamp),
            EntryKind::CustomMessage { content, display: true, .. } => {
                self.title("Extension", &entry.timestamp);
                return self.content(content);
            }
            EntryKind::Compaction { summary, .. } => {
                self.title("Summary of the conversation so far", &entry.timestamp);
                return self.text(summary);
            }
            EntryKind::BranchSummary { summary, .. } => {
                self.title("Summary of another branch", &entry.timestamp);
                return self.text(summary);
            }
            EntryKind::ModelChange { provider, model_id } => {
                format!("Model: {provider}/{model_id}")
            }
            EntryKind::ThinkingLevelChange { thinking_level } => {
                format!("Thinking level: {thinking_level}")
            }
            // The other kinds change nothing that a reader sees.
            _ => return,
        };

        self.list.push(Part::Note(clean_line(&note)));
    }

    fn message(&mut self, message: &'a Message, time: &str) {
        match message {
            Message::User(message) => {
                self.title("User", time);
                self.content(&message.content);
            }
            Message::Assistant(message) => self.assistant(message, time),
            Message::ToolResult(result) => self.result(result),
            Message::BashExecution(message) => {
                self.title("Command of the user", time);
                self.list.push(Part::Tool(Tool {
                    name: "bash".to_owned(),
                    subject: clean_line(&message.command),
                    input: clean(&message.command),
                    output: Some(clean(&message.output)),
                    is_error: message.exit_code != Some(0),
                    ..Tool::default()
                }));
            }
            Message::Custom(message) if message.display => {
                self.title("Extension", time);
                self.content(&message.content);
            }
            Message::BranchSummary { summary, .. } | Message::CompactionSummary { summary, .. } => {
                self.title("Summary", time);
                self.text(summary);
            }
            Message::Custom(_) | Message::Other(_) => {}
        }
    }

    fn assistant(&mut self, message: &'a AssistantMessage, time: &str) {
        self.title("Assistant", time);
        for block in &message.content {
            match block {
                Block::Thinking { thinking, .. } if !thinking.trim().is_empty() => {
                    self.list.push(Part::Thinking(clean(thinking)));
                }
                Block::ToolCall(call) => {
                    self.calls.insert(&call.id, self.list.len());
                    self.list.push(Part::Tool(tool(call)));
                }
                block => self.block(block),
            }
        }

        if let Some(error) = &message.error_message {
            self.list.push(Part::Note(clean_line(&format!("Error: {error}"))));
        }
    }

    /// Adds a result to its call. The images follow the calls.
    fn result(&mut self, result: &'a ToolResultMessage) {
        // A result without its call, such as one of a damaged file, becomes a call of its own.
        let at = self.calls.remove(result.tool_call_id.as_str()).unwrap_or_else(|| {
            let name = clean_line(&result.tool_name);
            self.list.push(Part::Tool(Tool { name, ..Tool::default() }));
            self.list.len() - 1
        });

        if let Some(Part::Tool(tool)) = self.list.get_mut(at) {
            tool.output = Some(clean(&crate::message::text_of(&result.content)));
            tool.is_error = result.is_error;
        }

        let is_image = |block: &&Block| matches!(block, Block::Image { .. });
        result.content.iter().filter(is_image).for_each(|block| self.block(block));
    }

    fn title(&mut self, title: &str, time: &str) {
        self.list.push(Part::Message { title: title.to_owned(), time: clean_line(time) });
    }

    /// Adds the words of the user or of an extension.
    fn content(&mut self, content: &Content) {
        let blocks = match content {
            Content::Text(text) => return self.prompt(text),
            Content::Blocks(blocks) => blocks,
        };
        for block in blocks {
            match block {
                Block::Text { text, .. } => self.prompt(text),
                block => self.block(block),
            }
        }
    }

    fn prompt(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.list.push(Part::Prompt(clean(text.trim())));
        }
    }

    fn text(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.list.push(Part::Text(clean(text.trim())));
        }
    }

    fn block(&mut self, block: &Block) {
        match block {
            Block::Text { text, .. } => self.text(text),
            Block::Image { data, mime_type } => {
                // The page contains the type and the data unescaped.
                let is_base64 = |c: u8| c.is_ascii_alphanumeric() || b"+/=".contains(&c);
                let known = IMAGE_TYPES.into_iter().find(|it| it == mime_type);
                self.list.push(match known.filter(|_| data.bytes().all(is_base64)) {
                    Some(mime_type) => Part::Image { mime_type, data: data.clone() },
                    None => {
                        Part::Note(clean_line(&format!("Image of type {mime_type}, not shown")))
                    }
                });
            }
            _ => {}
        }
    }
}

fn tool(call: &ToolCall) -> Tool {
    let arguments = Value::Object(call.arguments.clone());
    let input = serde_json::to_string_pretty(&arguments).unwrap_or_default();
    let mut changes = call_view::changes(&call.name, &arguments, clean);

    if changes.contains(&Change::TooLarge) {
        // The arguments have the texts.
        changes.clear();
    }

    let content = arguments.get("content").and_then(Value::as_str);
    if let Some(text) = content.filter(|_| call_view::is_write(&call.name)) {
        changes.extend(clean(text).lines().map(|line| Change::Added(line.to_owned())));
    }

    Tool {
        name: clean_line(&call.name),
        subject: call_view::subject(&call.name, &arguments).map(clean_line).unwrap_or_default(),
        input: clean(&input),
        changes,
        ..Tool::default()
    }
}
