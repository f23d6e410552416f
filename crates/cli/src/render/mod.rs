//! The events of a session as text for a person. A pure state machine: events in, styled text out. Used
//! by the verbs that follow a session.
//!
//! - [`calls`], [`ending`]: tool calls. [`messages`]: what an agent and its user say. The rest takes one
//!   line each, here.
//! - [`history`]: what the Rubber Duck app writes of a session, which is no event.
//! - [`search`]: what files hold, for the verbs that look into files.
//! - [`page`]: the line that is open. [`mod@clean`]: what may reach a terminal. [`event`]: reading data.
//!
//! Events come from workers and agents, which may be wrong: nothing in them is believed to be there, to
//! be short or to be harmless. What is not known is not shown.

mod calls;
mod clean;
pub(crate) use clean::{Cleaner, clean, one_line};
mod ending;
mod event;
mod history;
mod messages;
mod page;
pub(crate) mod search;

use self::calls::Calls;
use self::history::{History, Shown};
use self::messages::{Messages, error};
use self::page::Page;
use crate::output::{DIM, YELLOW};
use serde_json::Value;
use std::time::Instant;

/// Longest text of an event that takes one line, in characters.
const MAX_LINE: usize = 400;

/// Longest data of an unknown event that is shown, in characters.
const MAX_UNKNOWN: usize = 120;

/// Options of a question that are shown where nobody can choose.
const MAX_OPTIONS: usize = 20;

/// Last words of a process that are shown, in lines.
const LAST_WORDS: usize = 5;

/// What a person wants to see.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// The model's thinking.
    pub(crate) show_thinking: bool,
    /// Also what is only of interest to who looks for a mistake.
    pub(crate) verbose: bool,
}

/// Turns events into text.
#[derive(Debug)]
pub(crate) struct Renderer {
    look: Look,
    page: Page,
    calls: Calls,
    messages: Messages,
    history: History,
    shown: Shown,
}

impl Renderer {
    /// A renderer that knows of nothing yet.
    pub(crate) fn new(look: Look) -> Self {
        Self {
            look,
            page: Page::default(),
            calls: Calls::default(),
            messages: Messages::new(look.show_thinking),
            history: History::default(),
            shown: Shown::default(),
        }
    }

    /// The text that event `name` adds. A line may stay open for the next one.
    pub(crate) fn render(&mut self, name: &str, data: &Value) -> String {
        match name {
            "tool_execution_start" => {
                self.shown.call(event::text(data, "toolCallId"));
                self.calls.start(data, &mut self.page);
            }
            "tool_execution_update" => self.calls.update(data, &mut self.page),
            "tool_execution_end" => self.calls.end(data, &mut self.page),
            "message_start" => self.messages.start(data, &mut self.shown, &mut self.page),
            "message_update" => self.messages.update(data, &mut self.page),
            "message_end" => self.messages.end(data, &mut self.page),
            _ => self.in_a_line(name, data),
        }
        self.page.take()
    }

    /// The text that an entry of the app's history adds.
    pub(crate) fn history(&mut self, entry: &Value) -> String {
        let how = (self.look.verbose, Instant::now());
        self.history.entry(entry, &mut self.shown, how, &mut self.page);
        self.page.take()
    }

    /// The person at the terminal has typed this: it need not be shown when it comes back as an event.
    pub(crate) fn typed(&mut self, text: &str) {
        self.shown.typed(text);
    }

    /// Whether the last line has no end yet.
    pub(crate) fn is_open(&self) -> bool {
        self.page.is_open()
    }

    /// Ends the line that has no end yet.
    pub(crate) fn close(&mut self) -> String {
        self.page.close();
        self.page.take()
    }

    /// A question of Pi's, and what was said about it, by lines.
    pub(crate) fn question(&mut self, lines: &[String]) -> String {
        for (n, line) in lines.iter().enumerate() {
            match n {
                0 => mark("ui", line, &mut self.page),
                _ => self.page.line(line),
            }
        }
        self.page.take()
    }

    /// Something that went wrong at our end.
    pub(crate) fn failure(&mut self, text: &str) -> String {
        error(text, &mut self.page);
        self.page.take()
    }

    /// A line of ours between the events.
    pub(crate) fn remark(&mut self, text: &str) -> String {
        self.page.line(format_args!("{DIM}{text}{DIM:#}"));
        self.page.take()
    }

    /// Events are missing: what was under way is not known any more.
    pub(crate) fn forget(&mut self) {
        self.calls.forget();
        self.messages = Messages::new(self.look.show_thinking);
    }

    fn in_a_line(&mut self, name: &str, data: &Value) {
        let text = |key| one_line(event::text(data, key), MAX_LINE);
        let page = &mut self.page;
        match name {
            "prompt_error" => error(&format!("Prompt failed: {}", text("error")), page),
            "extension_error" => extension_error(data, page),
            "auto_compaction_start" | "compaction_start" => mark("compact", &text("reason"), page),
            "auto_compaction_end" | "compaction_end" => mark("compact", &compacted(data), page),
            "auto_retry_start" => mark("retry", &retry(data), page),
            "auto_retry_end" => mark("retry", &retried(data), page),
            "session_deleted" => mark("session", "deleted", page),
            "extension_ui_request" => self.ui_request(data),
            "extension_ui_closed" => match event::text(data, "reason") {
                "timeout" => mark("ui", "timed out", page),
                "ended" => {}
                reason => mark("ui", &one_line(reason, MAX_LINE), page),
            },
            "turn_start" if self.look.verbose => dim("--- turn ---", page),
            "agent_end" if self.look.verbose => dim("--- end ---", page),
            "agent_start" | "turn_start" | "turn_end" | "agent_end" | "agent_settled" => {}
            unknown if self.look.verbose => {
                let name = one_line(unknown, MAX_UNKNOWN);
                dim(&format!("[{name}] {}", one_line(&data.to_string(), MAX_UNKNOWN)), page);
            }
            _ => {}
        }
    }

    fn ui_request(&mut self, data: &Value) {
        let (title, message) = (event::text(data, "title"), event::text(data, "message"));
        let text = if message.is_empty() { title } else { message };
        let page = &mut self.page;
        match event::text(data, "method") {
            // What is asked has both, and what can be chosen.
            "select" | "confirm" | "input" | "editor" => {
                let options = data.get("options").and_then(Value::as_array);
                let options: Vec<&str> = options
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .take(MAX_OPTIONS)
                    .collect();
                let parts = [title, message, &options.join(" | ")];
                let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                mark("ui", &one_line(&parts.join("  "), MAX_LINE), page);
            }
            "setStatus" | "setWidget" | "setTitle" | "set_editor_text" if !self.look.verbose => {}
            "setStatus" => match text.strip_prefix("voice:") {
                Some(state) => dim(&format!("[voice] {}", one_line(state, MAX_LINE)), page),
                None => dim(&format!("[ui] {}", one_line(text, MAX_LINE)), page),
            },
            _ => mark("ui", &one_line(text, MAX_LINE), page),
        }
    }
}

fn mark(mark: &str, text: &str, page: &mut Page) {
    let gap = if text.is_empty() { "" } else { " " };
    page.line(format_args!("{YELLOW}[{mark}]{YELLOW:#}{gap}{text}"));
}

fn dim(text: &str, page: &mut Page) {
    page.line(format_args!("{DIM}{text}{DIM:#}"));
}

fn extension_error(data: &Value, page: &mut Page) {
    let (path, text) = (event::text(data, "extensionPath"), event::text(data, "error"));
    // The daemon is no extension: its sentence says it all.
    if path == "daemon" {
        error(text, page);
    } else {
        let event = event::text(data, "event");
        error(&format!("Extension {path} ({event}): {text}"), page);
    }
    let last_words: Vec<&str> = event::text(data, "stderrTail").lines().collect();
    for line in last_words.iter().skip(last_words.len().saturating_sub(LAST_WORDS)) {
        dim(&format!("  {}", one_line(line, MAX_LINE)), page);
    }
}

fn compacted(data: &Value) -> String {
    let flag = |key| data.get(key).and_then(Value::as_bool).unwrap_or(false);
    let error = one_line(event::text(data, "errorMessage"), MAX_LINE);
    let result = data.get("result").filter(|result| result.is_object());
    match result.and_then(|result| result.get("tokensBefore")?.as_u64()) {
        _ if flag("aborted") => "aborted".to_owned(),
        _ if !error.is_empty() => format!("failed: {error}"),
        Some(tokens) => format!("done, {tokens} tokens before"),
        None => "done".to_owned(),
    }
}

fn retry(data: &Value) -> String {
    let number = |key| data.get(key).and_then(Value::as_u64).unwrap_or(0);
    format!(
        "attempt {} of {} in {}: {}",
        number("attempt"),
        number("maxAttempts"),
        event::span(number("delayMs")),
        one_line(event::text(data, "errorMessage"), MAX_LINE)
    )
}

fn retried(data: &Value) -> String {
    if data.get("success") == Some(&Value::Bool(true)) {
        return "succeeded".to_owned();
    }
    format!("gave up: {}", one_line(event::text(data, "finalError"), MAX_LINE))
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
