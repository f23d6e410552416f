//! Renders messages: prompts of users, and the model's answers as they arrive. Used by [`super::Renderer`].

use super::calls::content;
use super::event;
use super::history::{self, RecentTexts, Source};
use super::line_buffer::{LineBuffer, StreamKind};
use super::markdown::Markdown;
use crate::output::{DIM, RED};
use crate::sanitize::{Sanitizer, clean, one_line};
use anstyle::Style;
use serde_json::Value;
use std::time::Instant;

/// Maximum text shown per event, in bytes.
const MAX_TEXT: usize = 64 * 1024;

/// Maximum length of an error text, in characters.
const MAX_ERROR: usize = 400;

/// State of the current message.
#[derive(Debug, Default)]
pub(super) struct Messages {
    show_thinking: bool,
    /// Width of the terminal. `None` if Markdown is shown as it is.
    columns: Option<usize>,
    markdown: Markdown,
    answer: Sanitizer,
    thinking: Sanitizer,
    /// Whether any of its text was shown.
    was_shown: bool,
}

impl Messages {
    pub(super) fn new(show_thinking: bool) -> Self {
        Self { show_thinking, ..Self::default() }
    }

    /// From now on, Markdown is rendered for a terminal of this width.
    pub(super) fn set_columns(&mut self, columns: usize) {
        self.columns = Some(columns);
    }

    /// Returns the rows of the incomplete block.
    pub(super) fn open_rows(&self) -> Vec<String> {
        self.columns.map_or_else(Vec::new, |columns| self.markdown.open_rows(columns))
    }

    /// Whether a block is incomplete.
    pub(super) fn is_open(&self) -> bool {
        self.markdown.is_open()
    }

    /// Prints the incomplete block.
    pub(super) fn finish(&mut self, page: &mut LineBuffer) {
        if let Some(columns) = self.columns {
            self.markdown.finish(columns).iter().for_each(|row| page.line(row));
        }
    }

    /// Drops the current message.
    pub(super) fn reset(&mut self) {
        *self = Self { columns: self.columns, ..Self::new(self.show_thinking) };
    }

    /// Prints a piece of an answer.
    fn say(&mut self, text: &str, page: &mut LineBuffer) {
        match self.columns {
            Some(columns) => {
                self.markdown.feed(text, columns).iter().for_each(|row| page.line(row));
            }
            None => page.flow(StreamKind::Answer, "", Style::new(), text),
        }
    }

    pub(super) fn start(&mut self, data: &Value, recent: &mut RecentTexts, page: &mut LineBuffer) {
        let message = data.get("message").unwrap_or(&Value::Null);
        match event::text(message, "role") {
            "user" => {
                let text = content(message);
                if recent.is_new(Source::Events, &text, Instant::now()) {
                    let most = self.columns.map_or(usize::MAX, |_| history::USER_LINES);
                    history::user(bounded(&text), most, page);
                }
            }
            "assistant" => {
                self.finish(page);
                self.reset();
            }
            // Results of tools were already shown by their calls.
            _ => {}
        }
    }

    pub(super) fn update(&mut self, data: &Value, page: &mut LineBuffer) {
        let delta = data.get("assistantMessageEvent").unwrap_or(&Value::Null);

        let text = bounded(event::text(delta, "delta"));
        let mut clean = String::new();

        match event::text(delta, "type") {
            "text_delta" => {
                self.answer.feed(text, &mut clean);
                self.was_shown |= !clean.is_empty();
                self.say(&clean, page);
            }
            "thinking_delta" if self.show_thinking => {
                self.thinking.feed(text, &mut clean);
                page.flow(StreamKind::Thinking, &format!("{DIM}[thinking]{DIM:#} "), DIM, &clean);
            }
            "text_end" => {
                self.finish(page);
                page.close();
            }
            "thinking_end" => page.close(),
            _ => {}
        }
    }

    pub(super) fn end(&mut self, data: &Value, page: &mut LineBuffer) {
        let message = data.get("message").unwrap_or(&Value::Null);
        match event::text(message, "role") {
            "assistant" => {
                page.close();
                // The message may have begun before this client followed, or may have no updates.
                if !self.was_shown {
                    self.say(&clean(bounded(&content(message))), page);
                }
                self.finish(page);
                page.close();

                match event::text(message, "stopReason") {
                    "error" => error(event::text(message, "errorMessage"), page),
                    "aborted" => page.line(format_args!("{DIM}[aborted]{DIM:#}")),
                    "length" => error(CUT, page),
                    _ if event::text(message, "rawStopReason") == "refusal" => error(REFUSED, page),
                    _ => {}
                }
                self.reset();
            }
            "custom" if message.get("display") == Some(&Value::Bool(true)) => {
                page.flow(StreamKind::Answer, "", Style::new(), &clean(bounded(&content(message))));
                page.close();
            }
            _ => {}
        }
    }
}

/// Text for an answer that its limit has cut.
const CUT: &str = "the answer was cut at the limit of tokens of one answer; `continue` as the next prompt asks for the rest";

/// Text for an answer that is the model's refusal.
const REFUSED: &str = "the model refused to answer; say it in other words, or choose another model";

/// Renders a failure on one line.
pub(super) fn error(text: &str, page: &mut LineBuffer) {
    page.line(format_args!("{RED}[error]{RED:#} {}", one_line(text, MAX_ERROR)));
}

fn bounded(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default()
}
