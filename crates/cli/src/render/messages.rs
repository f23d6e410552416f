//! Messages of an agent on the page: what a person said, what the model answers, as it comes. Used by
//! [`super::Renderer`].

use super::clean::{Cleaner, clean, one_line};
use super::event;
use super::history::{self, Shown, Source};
use super::page::{Flow, Page};
use crate::output::{DIM, RED};
use anstyle::Style;
use serde_json::Value;
use std::time::Instant;

/// Most that one event shows of a message, in bytes.
const MAX_TEXT: usize = 64 * 1024;

/// Longest error text that is shown, in characters.
const MAX_ERROR: usize = 400;

/// The message that is under way.
#[derive(Debug, Default)]
pub(super) struct Messages {
    show_thinking: bool,
    answer: Cleaner,
    thinking: Cleaner,
    /// Some of its text was shown as it came.
    was_shown: bool,
}

impl Messages {
    pub(super) fn new(show_thinking: bool) -> Self {
        Self { show_thinking, ..Self::default() }
    }

    pub(super) fn start(&mut self, data: &Value, shown: &mut Shown, page: &mut Page) {
        let message = data.get("message").unwrap_or(&Value::Null);
        match event::text(message, "role") {
            "user" => {
                let said = content(message);
                if shown.is_new(Source::Events, &said, Instant::now()) {
                    history::user(bounded(&said), page);
                }
            }
            "assistant" => *self = Self::new(self.show_thinking),
            // What a tool said was shown when it said it.
            _ => {}
        }
    }

    pub(super) fn update(&mut self, data: &Value, page: &mut Page) {
        let delta = data.get("assistantMessageEvent").unwrap_or(&Value::Null);
        let text = bounded(event::text(delta, "delta"));
        let mut shown = String::new();
        match event::text(delta, "type") {
            "text_delta" => {
                self.answer.feed(text, &mut shown);
                self.was_shown |= !shown.is_empty();
                page.flow(Flow::Answer, "", Style::new(), &shown);
            }
            "thinking_delta" if self.show_thinking => {
                self.thinking.feed(text, &mut shown);
                page.flow(Flow::Thinking, &format!("{DIM}[thinking]{DIM:#} "), DIM, &shown);
            }
            "text_end" | "thinking_end" => page.close(),
            _ => {}
        }
    }

    pub(super) fn end(&mut self, data: &Value, page: &mut Page) {
        let message = data.get("message").unwrap_or(&Value::Null);
        match event::text(message, "role") {
            "assistant" => {
                page.close();
                // It may have begun before we came, or have had no time for more than its end.
                if !self.was_shown {
                    page.flow(Flow::Answer, "", Style::new(), &clean(bounded(&content(message))));
                    page.close();
                }
                match event::text(message, "stopReason") {
                    "error" => error(event::text(message, "errorMessage"), page),
                    "aborted" => page.line(format_args!("{DIM}[aborted]{DIM:#}")),
                    _ => {}
                }
                *self = Self::new(self.show_thinking);
            }
            "custom" if message.get("display") == Some(&Value::Bool(true)) => {
                page.flow(Flow::Answer, "", Style::new(), &clean(bounded(&content(message))));
                page.close();
            }
            _ => {}
        }
    }
}

/// A failure, on one line.
pub(super) fn error(text: &str, page: &mut Page) {
    page.line(format_args!("{RED}[error]{RED:#} {}", one_line(text, MAX_ERROR)));
}

fn content(message: &Value) -> String {
    message.get("content").map(event::blocks).unwrap_or_default()
}

fn bounded(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default()
}
