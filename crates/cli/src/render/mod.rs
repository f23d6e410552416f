//! Renders the events of a session as text. Pure state machine: takes events, returns styled text. Used by the
//! subcommands that follow a session.
//!
//! - [`calls`], [`call_rows`] on a terminal, [`call_summary`]: tool calls. [`messages`]: prompts and answers, with
//!   [`markdown`] on a terminal. This module renders the other events,
//!   which take one line each.
//! - [`history`]: the history written by the Rubber Duck app.
//! - [`search`]: content of files, for the search subcommands.
//! - [`line_buffer`]: the open line. [`crate::sanitize`]: removes control characters. [`event`]: reads data.
//!
//! Events come from workers and agents, which may be faulty. Fields may be missing, too long or harmful. Unknown data
//! is not shown.

mod call_rows;
mod call_summary;
pub(crate) mod calls;
mod event;
mod history;
mod line_buffer;
mod markdown;
mod messages;
pub(crate) mod search;
mod wrap;

use self::call_rows::CallRows;
use self::calls::Calls;
use self::history::{History, RecentTexts};
use self::line_buffer::LineBuffer;
use self::messages::{Messages, error};
use crate::output::{DIM, YELLOW};
use crate::sanitize::one_line;
use quackd_protocol::plain::error_line;
use quackd_protocol::suggestion::may_be_suggested;
use serde_json::Value;
use std::time::Instant;

/// Maximum length of an event's text on one line, in characters.
const MAX_LINE: usize = 400;

/// Maximum length of an unknown event's data, in characters.
const MAX_UNKNOWN: usize = 120;

/// Maximum number of a question's options shown without a prompt.
const MAX_OPTIONS: usize = 20;

/// Number of shown lines of a process's stderr tail.
const LAST_WORDS: usize = 5;

/// Maximum length of the line with the error of a process that died, in characters.
const MAX_CAUSE: usize = 2_000;

/// Display options.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DisplayOptions {
    /// Show the model's thinking.
    pub(crate) show_thinking: bool,
    /// Show events for debugging.
    pub(crate) verbose: bool,
}

/// State machine that renders events as text.
#[derive(Debug)]
pub(crate) struct Renderer {
    look: DisplayOptions,
    page: LineBuffer,
    calls: Calls,
    /// Calls of tools, if stdout is a terminal. Otherwise `calls` has them.
    call_rows: CallRows,
    /// Width of the terminal, if the text is rendered for one.
    columns: Option<usize>,
    messages: Messages,
    history: History,
    recent: RecentTexts,
}

impl Renderer {
    /// Creates a renderer for a pipe. A width makes it one for a terminal.
    pub(crate) fn new(look: DisplayOptions) -> Self {
        Self {
            look,
            page: LineBuffer::default(),
            calls: Calls::default(),
            call_rows: CallRows::default(),
            columns: None,
            messages: Messages::new(look.show_thinking),
            history: History::default(),
            recent: RecentTexts::default(),
        }
    }

    /// Renders event `name`. The last line may stay open.
    pub(crate) fn render(&mut self, name: &str, data: &Value) -> String {
        match name {
            "tool_execution_start" => {
                // The history reports the same call again.
                self.recent.call(event::text(data, "toolCallId"));
                match self.columns {
                    Some(_) => self.call_rows.start(data),
                    None => self.calls.start(data, &mut self.page),
                }
            }
            "tool_execution_update" => match self.columns {
                Some(_) => self.call_rows.update(data),
                None => self.calls.update(data, &mut self.page),
            },
            "tool_execution_end" => match self.columns {
                Some(columns) => self.call_rows.end(data, columns, &mut self.page),
                None => self.calls.end(data, &mut self.page),
            },
            "message_start" => self.messages.start(data, &mut self.recent, &mut self.page),
            "message_update" => self.messages.update(data, &mut self.page),
            "message_end" => self.messages.end(data, &mut self.page),
            _ => self.in_a_line(name, data),
        }
        self.page.take()
    }

    /// Renders an entry of the app's history.
    pub(crate) fn history(&mut self, entry: &Value) -> String {
        let (verbose, now) = (self.look.verbose, Instant::now());
        self.history.entry(entry, &mut self.recent, verbose, now, &mut self.page);
        self.page.take()
    }

    /// Records a text typed by the user, so that its event is not shown again.
    pub(crate) fn typed(&mut self, text: &str) {
        self.recent.typed(text);
    }

    /// Renders a prompt of the user.
    pub(crate) fn user(&mut self, text: &str) -> String {
        history::user(text, history::USER_LINES, &mut self.page);
        self.page.take()
    }

    /// Whether the last line is open.
    pub(crate) fn is_open(&self) -> bool {
        self.page.is_open() || self.messages.is_open()
    }

    /// Renders for a terminal of this width, and returns complete lines only. [`Renderer::open_rows`] returns the rest.
    pub(crate) fn set_columns(&mut self, columns: usize) {
        self.columns = Some(columns);
        self.page.keep_open();
        self.messages.set_columns(columns);
    }

    /// Returns the last rows of what is not complete, at most `most`, each narrower than `columns`.
    pub(crate) fn open_rows(&self, columns: usize, most: usize) -> Vec<String> {
        let mut rows = self.messages.open_rows();
        let line = self.page.open_line();
        if !line.is_empty() {
            rows.extend(wrap::last_rows(line, columns, most));
        }
        rows.extend(self.call_rows.open_rows(columns));
        let begin = rows.len().saturating_sub(most);
        rows.split_off(begin)
    }

    /// Ends the open line.
    pub(crate) fn close(&mut self) -> String {
        self.messages.finish(&mut self.page);
        self.page.close();
        self.page.take()
    }

    /// Renders a failure of the client.
    pub(crate) fn failure(&mut self, text: &str) -> String {
        error(text, &mut self.page);
        self.page.take()
    }

    /// Renders a remark of the client between events.
    pub(crate) fn remark(&mut self, text: &str) -> String {
        self.page.line(format_args!("{DIM}{text}{DIM:#}"));
        self.page.take()
    }

    /// Drops all running calls and messages after lost events.
    pub(crate) fn forget(&mut self) {
        self.calls.forget();
        self.call_rows.forget();
        self.messages.reset();
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
            "network_denied" => mark("network", &denied(data), page),
            "credential_used" => {
                mark("credential", &format!("{}: {}", text("use"), text("result")), page);
            }
            "forward_opened" | "forward_closed" => mark("forward", &forward(name, data), page),
            "terminal_started" | "terminal_ended" => mark("terminal", &terminal(name, data), page),
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
            // Questions have a title, a message and options.
            "select" | "confirm" | "input" | "editor" => {
                let options = data.get("options").and_then(Value::as_array).into_iter().flatten();
                let options: Vec<&str> =
                    options.filter_map(Value::as_str).take(MAX_OPTIONS).collect();
                let options = options.join(" | ");

                // A question about a permission has one line for each word of others.
                let n_lines = if data.get("permission").is_some() { usize::MAX } else { 1 };
                let mut lines = message.splitn(n_lines, '\n').take(MAX_OPTIONS);
                let parts = [title, lines.next().unwrap_or_default(), options.as_str()];
                let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();

                mark("ui", &one_line(&parts.join("  "), MAX_LINE), page);
                for line in lines {
                    dim(&format!("  {}", one_line(line, MAX_LINE)), page);
                }
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

fn mark(mark: &str, text: &str, page: &mut LineBuffer) {
    let gap = if text.is_empty() { "" } else { " " };
    page.line(format_args!("{YELLOW}[{mark}]{YELLOW:#}{gap}{text}"));
}

fn dim(text: &str, page: &mut LineBuffer) {
    page.line(format_args!("{DIM}{text}{DIM:#}"));
}

fn extension_error(data: &Value, page: &mut LineBuffer) {
    let (path, text) = (event::text(data, "extensionPath"), event::text(data, "error"));
    // The daemon is not an extension. Its text needs no prefix.
    if path == "daemon" {
        error(text, page);
    } else {
        let event = event::text(data, "event");
        error(&format!("Extension {path} ({event}): {text}"), page);
    }

    let tail = event::text(data, "stderrTail");
    let last_words: Vec<&str> = tail.lines().collect();
    let skipped = last_words.len().saturating_sub(LAST_WORDS);

    // The line with the error may come before a long stack.
    let cause = error_line(tail);
    let is_shown = |line: &&str| cause == Some(line.trim());
    if let Some(cause) = cause.filter(|_| !last_words.iter().skip(skipped).any(is_shown)) {
        page.line(format_args!("  {}", one_line(cause, MAX_CAUSE)));
    }

    for line in last_words.iter().skip(skipped) {
        let most = if is_shown(line) { MAX_CAUSE } else { MAX_LINE };
        dim(&format!("  {}", one_line(line, most)), page);
    }
}

/// A refused host, with the command that allows it if no rule names it.
fn denied(data: &Value) -> String {
    let (host, reason) = (one_line(event::text(data, "host"), MAX_LINE), event::text(data, "why"));

    let port = event::number(data, "port");
    let target = match port {
        0 => host.clone(),
        port if host.contains(':') => format!("[{host}]:{port}"),
        port => format!("{host}:{port}"),
    };

    // The ports of the web need no port in a rule.
    let rule = if matches!(port, 0 | 80 | 443) { &host } else { &target };
    match reason {
        "not-listed" if may_be_suggested(&host) => {
            format!("{target} was denied; to allow it: quack sandbox allow {rule}")
        }
        reason => format!("{target} was denied: {}", one_line(reason, MAX_LINE)),
    }
}

fn forward(name: &str, data: &Value) -> String {
    let (port, local) = (event::number(data, "port"), event::number(data, "local"));
    match name {
        "forward_opened" => format!("port {port} is 127.0.0.1:{local} on this machine"),
        _ => format!("port {port} is closed"),
    }
}

/// The command of a terminal that has started, or how its program has ended.
fn terminal(name: &str, data: &Value) -> String {
    let text = |key| one_line(event::text(data, key), MAX_LINE);
    let id = text("terminalId");
    if name == "terminal_started" {
        return format!("{id}: {}", text("command"));
    }

    let number = |key| data.get(key).and_then(Value::as_i64);
    let reason = text("reason");
    match (number("exitCode"), number("signal")) {
        _ if !reason.is_empty() => format!("{id} has ended: {reason}"),
        (Some(code), _) => format!("{id} has ended with code {code}"),
        (None, Some(signal)) => format!("{id} has ended by signal {signal}"),
        (None, None) => format!("{id} has ended"),
    }
}

fn compacted(data: &Value) -> String {
    let is_aborted = data.get("aborted").and_then(Value::as_bool).unwrap_or(false);
    let error = one_line(event::text(data, "errorMessage"), MAX_LINE);
    let result = data.get("result").filter(|result| result.is_object());
    match result.and_then(|result| result.get("tokensBefore")?.as_u64()) {
        _ if is_aborted => "aborted".to_owned(),
        _ if !error.is_empty() => format!("failed: {error}"),
        Some(tokens) => format!("done, {tokens} tokens before"),
        None => "done".to_owned(),
    }
}

fn retry(data: &Value) -> String {
    format!(
        "attempt {} of {} in {}: {}",
        event::number(data, "attempt"),
        event::number(data, "maxAttempts"),
        event::span(event::number(data, "delayMs")),
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
