//! Renders tool calls: beginning, output and end. Used by [`super::Renderer`].
//!
//! A session may run several calls concurrently. The output of a single call is shown as it arrives. With several
//! calls, output is shown in complete lines, each labeled with its call.

use super::call_summary::CallSummary;
use super::event;
use super::line_buffer::{LineBuffer, StreamKind};
use crate::display::count;
use crate::output::{BOLD, CYAN, DIM};
use crate::sanitize::{Sanitizer, clean, one_line};
use anstyle::Style;
use quackd_agent::call_view::is_read;
use quackd_protocol::output::UNKNOWN_EXIT;
use quackd_protocol::tools::main_parameter;
use serde_json::{Map, Value};

/// Maximum number of tracked calls. The oldest is dropped first.
const MAX_CALLS: usize = 64;

/// Maximum length of a tool name and of a client's name, in characters.
const MAX_NAME: usize = 60;

/// Maximum length of an argument's value in characters, and maximum number of arguments.
const MAX_VALUE: usize = 120;
const MAX_ARGUMENTS: usize = 16;

/// Maximum length of a held incomplete line, in bytes.
const MAX_HELD: usize = 4096;

/// Maximum output shown per event, in bytes.
const MAX_TEXT: usize = 64 * 1024;

/// Maximum number of lines shown of a read file.
const FILE_LINES: usize = 10;

/// Running calls.
#[derive(Debug, Default)]
pub(super) struct Calls {
    running: Vec<RenderedCall>,
    next_key: u64,
}

#[derive(Debug)]
struct RenderedCall {
    key: u64,
    id: String,
    tool: String,
    /// Name of the caller and `: `. Empty if the caller did not name itself.
    client: String,
    /// Number that distinguishes concurrent calls of one tool, from 1.
    number: usize,
    cleaner: Sanitizer,
    /// Held incomplete line.
    held: String,
    /// Text of the last update without `delta`, or its end.
    partial: String,
    /// Whether any of its output was shown.
    was_shown: bool,
}

impl Calls {
    /// Drops all running calls after lost events.
    pub(super) fn forget(&mut self) {
        self.running.clear();
    }

    pub(super) fn start(&mut self, data: &Value, page: &mut LineBuffer) {
        let (tool, client) = names(data);
        let number = (1..).find(|n| self.running.iter().all(|call| call.number != *n));
        let number = number.unwrap_or(usize::MAX);
        let mark = if number == 1 { "[tool]".to_owned() } else { format!("[tool {number}]") };
        let arguments = data.get("args").map(arguments).unwrap_or_default();

        page.line(format_args!("{CYAN}{mark}{CYAN:#} {client}{BOLD}{tool}{BOLD:#}{arguments}"));
        // The end of the oldest call was lost.
        if MAX_CALLS <= self.running.len() {
            self.running.remove(0);
        }

        self.next_key += 1;
        self.running.push(RenderedCall {
            key: self.next_key,
            id: event::text(data, "toolCallId").to_owned(),
            tool,
            client,
            number,
            cleaner: Sanitizer::default(),
            held: String::new(),
            partial: String::new(),
            was_shown: false,
        });
    }

    pub(super) fn update(&mut self, data: &Value, page: &mut LineBuffer) {
        let is_alone = self.running.len() < 2;
        let Some(call) = self.find(data) else {
            // The call began before this client followed: its earlier output is incomplete.
            self.start(data, page);

            let delta = data.get("delta").and_then(Value::as_str).unwrap_or_default();
            let n_earlier = n_bytes(data, "totalBytes").saturating_sub(delta.len());
            if n_earlier != 0 {
                page.line(omitted(n_earlier));
            }
            return self.continue_with(data, page);
        };

        let gap = n_bytes(data, "omittedBytes");
        if gap != 0 {
            call.flush(is_alone, page);
            page.line(omitted(gap));
            call.was_shown = true;
        }
        self.continue_with(data, page);
    }

    fn continue_with(&mut self, data: &Value, page: &mut LineBuffer) {
        let is_alone = self.running.len() < 2;
        let Some(call) = self.find(data) else { return };
        match data.get("delta").and_then(Value::as_str) {
            Some(delta) => call.say(delta, is_alone, page),
            None => {
                let whole = data.get("partialResult").map(content).unwrap_or_default();
                let new = call.new_in(&whole).to_owned();
                call.say(&new, is_alone, page);
                // Only the end is needed to find the new part in the next window.
                let kept = whole.ceil_char_boundary(whole.len().saturating_sub(MAX_TEXT));
                whole.get(kept..).unwrap_or_default().clone_into(&mut call.partial);
            }
        }
    }

    pub(super) fn end(&mut self, data: &Value, page: &mut LineBuffer) {
        let is_alone = self.running.len() < 2;
        if self.find(data).is_none() {
            self.start(data, page);
        }

        let Some(at) = self.position(data) else { return };
        let mut call = self.running.remove(at);
        call.flush(is_alone, page);

        let end = CallSummary::read(data);
        let text = data.get("result").map(content).unwrap_or_default();
        let last_line = match (end.exit_code, end.signal()) {
            (Some(code), _) => Some(format!("[Exit code: {code}]")),
            (None, Some(_)) => Some(UNKNOWN_EXIT.to_owned()),
            (None, None) => None,
        };

        call.answer(&text, last_line.as_deref(), is_alone, page);
        let RenderedCall { client, tool, number, .. } = call;
        let number = if is_alone { String::new() } else { format!(" {number}") };
        page.line(end.line(&client, &format!("{tool}{number}"), is_alone));
    }

    fn position(&self, data: &Value) -> Option<usize> {
        let id = event::text(data, "toolCallId");
        // Clients choose the ids, so two calls may have the same id.
        self.running.iter().rposition(|call| call.id == id)
    }

    fn find(&mut self, data: &Value) -> Option<&mut RenderedCall> {
        let at = self.position(data)?;
        self.running.get_mut(at)
    }
}

impl RenderedCall {
    fn prefix(&self, is_alone: bool) -> String {
        if is_alone {
            return "  ".to_owned();
        }
        format!("  {DIM}[{} {}]{DIM:#} ", self.tool, self.number)
    }

    /// Shows the next piece of output.
    fn say(&mut self, text: &str, is_alone: bool, page: &mut LineBuffer) {
        let piece = text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default();
        let mut lines = std::mem::take(&mut self.held);
        self.cleaner.feed(piece, &mut lines);
        self.was_shown |= !piece.is_empty();

        // A line of one of several calls is shown as a whole, unless it is too long.
        if !is_alone && lines.len() < MAX_HELD + MAX_TEXT {
            let end = lines.rfind('\n').map_or(0, |at| at + 1);
            if lines.len() - end < MAX_HELD {
                self.held = lines.split_off(end);
            }
        }

        page.flow(StreamKind::Call(self.key), &self.prefix(is_alone), Style::new(), &lines);
        if piece.len() < text.len() {
            page.line(omitted(text.len() - piece.len()));
        }
    }

    /// Shows the held text and ends the line.
    fn flush(&mut self, is_alone: bool, page: &mut LineBuffer) {
        let mut rest = std::mem::take(&mut self.held);
        self.cleaner.finish(&mut rest);
        page.flow(StreamKind::Call(self.key), &self.prefix(is_alone), Style::new(), &rest);
        page.close();
    }

    /// Returns the part of `whole` that the last update did not contain. `whole` may be a sliding window. Then the last
    /// shown text locates the new part.
    fn new_in<'a>(&self, whole: &'a str) -> &'a str {
        if let Some(new) = whole.strip_prefix(self.partial.as_str()) {
            return new;
        }

        // A short tail finds a window that has moved far.
        for tail_bytes in [256, 64] {
            let begin = self.partial.len().saturating_sub(tail_bytes);
            let begin = self.partial.floor_char_boundary(begin);
            let tail = self.partial.get(begin..).unwrap_or_default();
            if let Some(at) = whole.rfind(tail) {
                return whole.get(at + tail.len()..).unwrap_or_default();
            }
        }
        whole
    }

    /// Shows the part of the result that was not shown as output. The summary has the facts of `last_line`.
    fn answer(&self, text: &str, last_line: Option<&str>, is_alone: bool, page: &mut LineBuffer) {
        let text = clean(text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default());

        let text = text.trim_end();
        let text = last_line.and_then(|line| text.strip_suffix(line)).unwrap_or(text).trim_end();
        let max_lines = match (self.was_shown, is_read(&self.tool)) {
            // Besides the output, the text may contain the reason for its end.
            (true, _) if text.starts_with("Error:") => 1,
            (true, _) => 0,
            (false, true) => FILE_LINES,
            (false, false) => usize::MAX,
        };

        let prefix = self.prefix(is_alone);
        for line in text.lines().take(max_lines) {
            page.line(format_args!("{}{line}", if line.is_empty() { "" } else { &prefix }));
        }

        let more = text.lines().count().saturating_sub(max_lines);
        if more != 0 && !self.was_shown {
            page.line(format_args!("{prefix}{DIM}… {}{DIM:#}", count(more, "more line")));
        }
    }
}

/// Arguments that narrow a search, and what replaces its matches.
const NARROWING: [&str; 4] = ["replacement", "path", "include", "exclude"];

/// Returns the argument that says most, such as the command of `bash`, the path of a file tool, or the pattern of a search
/// with what narrows it. `None` if the tool has none.
pub(crate) fn main_words(tool: &str, arguments: &Map<String, Value>) -> Option<String> {
    let words = |name: &str| match arguments.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Array(values) => {
            let words: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
            words.map(|words| words.join(" "))
        }
        _ => None,
    };

    let main = main_parameter(tool).and_then(words).or_else(|| words("path"))?;
    let is_search = arguments.contains_key("pattern");

    let narrowing = NARROWING.into_iter().filter(|_| is_search).filter_map(|name| {
        let words = words(name).filter(|words| *words != main && words != ".")?;
        (!words.is_empty() || name == "replacement").then(|| format!(" {name}={words}"))
    });

    let is_background = arguments.get("background").and_then(Value::as_bool) == Some(true);
    let background = if is_background { " (background)" } else { "" };
    Some(format!("{main}{background}{}", narrowing.collect::<String>()))
}

/// Returns ` k=v k=v`, or the argument itself if it is not an object.
pub(super) fn arguments(args: &Value) -> String {
    let value = |value: &Value| match value {
        Value::String(text) => one_line(text, MAX_VALUE),
        other => one_line(&other.to_string(), MAX_VALUE),
    };

    match args {
        Value::Null => String::new(),
        Value::Object(map) => {
            let mut text = String::new();
            for (key, argument) in map.iter().take(MAX_ARGUMENTS) {
                text.push_str(&format!(" {}={}", one_line(key, MAX_NAME), value(argument)));
            }
            if MAX_ARGUMENTS < map.len() {
                text.push_str(" ...");
            }
            text
        }
        other => format!(" {}", value(other)),
    }
}

/// Returns the name of a call's tool, and its caller's name and `: `. The second is empty if the caller did not name
/// itself.
pub(super) fn names(data: &Value) -> (String, String) {
    let name = |data: &Value, key: &str| one_line(event::text(data, key), MAX_NAME);
    let client = data.get("client").map(|client| name(client, "name"));
    let client = client.filter(|name| !name.is_empty()).map(|name| format!("{name}: "));
    (name(data, "toolName"), client.unwrap_or_default())
}

/// Returns the text blocks of a result or message.
pub(super) fn content(data: &Value) -> String {
    data.get("content").map(event::blocks).unwrap_or_default()
}

/// Returns a number of bytes in the details of an update, or 0.
fn n_bytes(data: &Value, key: &str) -> usize {
    let details = data.get("partialResult").and_then(|partial| partial.get("details"));
    let n = details.and_then(|details| details.get(key)?.as_u64()).unwrap_or(0);
    usize::try_from(n).unwrap_or(usize::MAX)
}

fn omitted(bytes: usize) -> String {
    format!("  {DIM}[... {bytes} bytes omitted]{DIM:#}")
}
