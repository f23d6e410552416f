//! Renders tool calls for a terminal: one line that ends with the result, and folded output. Used by [`super::Renderer`].
//!
//! While a call runs, its line and the end of its output are open rows. Edits of files are shown as a diff.

use super::call_summary::CallSummary;
use super::calls::{arguments, content, main_words, names};
use super::event;
use super::line_buffer::LineBuffer;
use super::wrap::{self, Wrap};
use crate::display::count;
use crate::output::{BOLD, CYAN, DIM, GREEN, RED};
use crate::sanitize::{Sanitizer, clean, one_line};
use quackd_agent::call_view::{self, Change};
use serde_json::Value;

/// Maximum number of tracked calls. The oldest is dropped first.
const MAX_CALLS: usize = 64;

/// Maximum length of a command or path on the line of its call, in characters.
const MAX_SUBJECT: usize = 300;

/// Number of lines at the beginning and at the end of folded output, and most lines that are not folded.
const HEAD: usize = 4;
const TAIL: usize = 6;
const MAX_WHOLE: usize = 14;

/// Limits of the kept output of a running call: its bytes, and the rows that are shown.
const MAX_KEPT: usize = 4096;
const RUNNING_ROWS: usize = 4;

/// Maximum number of lines of a diff.
const MAX_DIFF_LINES: usize = 40;

/// How to see folded output.
const WAY: &str = "quack log lists the call, and quack log show ID prints it";

/// Beginning of a line of output.
const INDENT: &str = "  ";

/// Calls that run.
#[derive(Debug, Default)]
pub(super) struct CallRows {
    running: Vec<RunningCall>,
}

#[derive(Debug)]
struct RunningCall {
    id: String,
    tool: String,
    /// Caller, tool and subject, with styles.
    title: String,
    diff: Vec<String>,
    cleaner: Sanitizer,
    /// End of the output.
    kept: String,
}

impl CallRows {
    /// Drops all running calls after lost events.
    pub(super) fn forget(&mut self) {
        self.running.clear();
    }

    pub(super) fn start(&mut self, data: &Value) {
        // The end of the oldest call was lost.
        if MAX_CALLS <= self.running.len() {
            self.running.remove(0);
        }

        let (tool, client) = names(data);
        let args = data.get("args").unwrap_or(&Value::Null);
        let subject = subject(&tool, args);

        self.running.push(RunningCall {
            id: event::text(data, "toolCallId").to_owned(),
            title: format!("{CYAN}[tool]{CYAN:#} {client}{BOLD}{tool}{BOLD:#}{subject}"),
            diff: diff(&tool, args),
            tool,
            cleaner: Sanitizer::default(),
            kept: String::new(),
        });
    }

    pub(super) fn update(&mut self, data: &Value) {
        // The call began before this client followed.
        if self.find(data).is_none() {
            self.start(data);
        }

        let Some(call) = self.find(data) else { return };
        match data.get("delta").and_then(Value::as_str) {
            Some(delta) => call.cleaner.feed(delta, &mut call.kept),
            None => call.kept = clean(&data.get("partialResult").map(content).unwrap_or_default()),
        }

        let begin = call.kept.len().saturating_sub(MAX_KEPT);
        call.kept.drain(..call.kept.ceil_char_boundary(begin));
    }

    pub(super) fn end(&mut self, data: &Value, columns: usize, page: &mut LineBuffer) {
        if self.find(data).is_none() {
            self.start(data);
        }

        let Some(at) = self.position(data) else { return };
        let call = self.running.remove(at);
        let end = CallSummary::read(data);
        let (is_error, ending) = end.ending();
        let mark = if is_error { format!(" {RED}failed{RED:#}") } else { String::new() };
        page.line(format_args!("{}{mark}{ending}", call.title));

        let numbered = data.pointer("/result/details/diff").and_then(Value::as_str);
        let numbered = numbered.filter(|_| !call_view::is_write(&call.tool)).map(numbered_diff);
        let diff = numbered.as_ref().unwrap_or(&call.diff);
        for row in diff.iter().filter(|_| !is_error) {
            row_of(row, columns, page);
        }

        let text = data.get("result").map(content).unwrap_or_default();
        // The title has the code.
        let last_line = end.exit_code.map(|code| format!("[Exit code: {code}]"));
        let text = match &last_line {
            Some(line) => {
                let text = text.trim_end();
                text.strip_suffix(line.as_str()).unwrap_or(text)
            }
            None => &text,
        };

        // The diff says what a successful edit did.
        if diff.is_empty() || is_error {
            output(&clean(text), &call, is_error, columns, page);
        }
    }

    /// Returns the rows of the running calls.
    pub(super) fn open_rows(&self, columns: usize) -> Vec<String> {
        let mut rows = Vec::new();

        for call in &self.running {
            rows.extend(wrap::last_rows(&call.title, columns, 2));

            let lines: Vec<&str> = call.kept.trim_end().lines().collect();
            let begin = lines.len().saturating_sub(RUNNING_ROWS);
            for line in lines.get(begin..).unwrap_or_default() {
                let line = wrap::rows(line, columns, Wrap::Anywhere, (INDENT, INDENT));
                rows.extend(line.into_iter().take(1).map(|row| format!("{DIM}{row}{DIM:#}")));
            }
        }
        rows
    }

    fn position(&self, data: &Value) -> Option<usize> {
        let id = event::text(data, "toolCallId");
        self.running.iter().rposition(|call| call.id == id)
    }

    fn find(&mut self, data: &Value) -> Option<&mut RunningCall> {
        let at = self.position(data)?;
        self.running.get_mut(at)
    }
}

/// Prints the output of a call. Long output is folded, and the content of a read file is only counted.
fn output(text: &str, call: &RunningCall, is_error: bool, columns: usize, page: &mut LineBuffer) {
    let lines: Vec<&str> = text.trim_matches('\n').lines().collect();
    if call_view::is_read(&call.tool) && !is_error {
        return page.line(format_args!("{INDENT}{DIM}{}{DIM:#}", count(lines.len(), "line")));
    }

    let mut row = |line: &str| row_of(&format!("{INDENT}{line}"), columns, page);
    if lines.len() <= MAX_WHOLE {
        return lines.iter().for_each(|line| row(line));
    }
    lines.iter().take(HEAD).for_each(|line| row(line));

    let hidden = lines.len() - HEAD - TAIL;
    row(&format!("{DIM}… {hidden} more lines; {WAY}{DIM:#}"));
    lines.iter().skip(lines.len() - TAIL).for_each(|line| row(line));
}

/// Prints a line, which the terminal may break.
fn row_of(line: &str, columns: usize, page: &mut LineBuffer) {
    for row in wrap::rows(line, columns, Wrap::Anywhere, ("", INDENT)) {
        page.line(row);
    }
}

/// Returns what a call is about: the command or the path without its name, or all arguments.
fn subject(tool: &str, args: &Value) -> String {
    match args.as_object().and_then(|args| main_words(tool, args)) {
        Some(known) => format!(" {}", one_line(&known, MAX_SUBJECT)),
        None => arguments(args),
    }
}

/// Returns the lines of an edit with `+` and `-`, or the number of lines of a new text.
fn diff(tool: &str, args: &Value) -> Vec<String> {
    let content = args.get("content").and_then(Value::as_str);
    if let Some(text) = content.filter(|_| call_view::is_write(tool)) {
        return vec![format!("{INDENT}{GREEN}{}{GREEN:#}", count(text.lines().count(), "line"))];
    }

    let changes = call_view::changes(tool, args, clean);

    let line = |change: &Change| match change {
        Change::Removed(line) => format!("{INDENT}{RED}- {line}{RED:#}"),
        Change::Added(line) => format!("{INDENT}{GREEN}+ {line}{GREEN:#}"),
        Change::Kept(line) => format!("{INDENT}{DIM}  {line}{DIM:#}"),
        Change::TooLarge => format!("{INDENT}{DIM}a large edit{DIM:#}"),
    };
    bounded(changes.iter().map(line))
}

/// Returns the lines of a diff with numbers, which the result of an edit has: context begins with a space.
fn numbered_diff(text: &str) -> Vec<String> {
    let text = clean(text);
    bounded(text.lines().map(|line| match line.as_bytes().first() {
        Some(b'-') => format!("{INDENT}{RED}{line}{RED:#}"),
        Some(b'+') => format!("{INDENT}{GREEN}{line}{GREEN:#}"),
        _ => format!("{INDENT}{DIM}{line}{DIM:#}"),
    }))
}

/// Returns the first [`MAX_DIFF_LINES`] lines, and how many follow.
fn bounded(mut lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept: Vec<String> = lines.by_ref().take(MAX_DIFF_LINES).collect();
    let more = lines.count();
    if more != 0 {
        kept.push(format!("{INDENT}{DIM}… {more} more lines{DIM:#}"));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(start: Value, end: Value) -> Vec<String> {
        let mut calls = CallRows::default();
        let mut page = LineBuffer::default();
        calls.start(&start);
        calls.end(&end, 60, &mut page);
        let text = anstream::adapter::strip_str(&page.take()).to_string();
        text.lines().map(str::to_owned).collect()
    }

    fn result(text: &str, more: Value) -> Value {
        let mut data = json!({"toolCallId": "c1", "isError": false, "durationMs": 1500,
            "result": {"content": [{"type": "text", "text": text}]}});
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        data
    }

    #[test]
    fn a_call_is_one_line_with_its_result_and_long_output_is_folded() {
        let bash = |command: &str| json!({"toolCallId": "c1", "toolName": "bash", "args": {"command": command}});
        let lines = shown(bash("ls\n-l"), result("a\nb\n\n[Exit code: 0]", json!({"exitCode": 0})));
        assert_eq!(lines, ["[tool] bash ls\\n-l [1.5 s]", "  a", "  b"]);
        let numbers: String = (1..=30).map(|n| format!("{n}\n")).collect();
        let lines = shown(bash("seq 30"), result(&numbers, json!({"exitCode": 3})));
        assert_eq!(lines[0], "[tool] bash seq 30 [1.5 s] exit code 3");
        assert_eq!(lines[4], "  4");
        assert!(lines[5].starts_with("  … 20 more lines; quack log lists"), "{}", lines[5]);
        assert_eq!(lines.last().unwrap(), "  30");
        let lines = shown(bash("x"), result("Error: no", json!({"isError": true})));
        assert_eq!(lines, ["[tool] bash x failed [1.5 s]", "  Error: no"]);
    }

    #[test]
    fn an_edit_is_a_diff_and_a_read_file_is_counted() {
        let edit = json!({"toolCallId": "c1", "toolName": "edit_file", "args": {"path": "a.rs",
            "old_text": "one\ntwo\n", "new_text": "one\n2\u{1b}[31m\n"}});
        let lines = shown(edit, result("Edited a.rs", json!({})));
        assert_eq!(lines, ["[tool] edit_file a.rs [1.5 s]", "    one", "  - two", "  + 2"]);
        // The result of quackd's own agent has numbers and context.
        let edit =
            json!({"toolCallId": "c1", "toolName": "edit", "args": {"path": "a.rs", "edits": []}});
        let mut end = result("Edited a.rs", json!({}));
        end["result"]["details"] = json!({"diff": " 7 one\n-8 two\u{1b}[31m\n+8 2"});
        let lines = shown(edit.clone(), end.clone());
        assert_eq!(lines, ["[tool] edit a.rs [1.5 s]", "   7 one", "  -8 two", "  +8 2"]);
        end["result"]["details"]["diff"] = "+1 x\n".repeat(MAX_DIFF_LINES + 7).into();
        assert_eq!(shown(edit, end).last().unwrap(), "  … 7 more lines");
        let read = json!({"toolCallId": "c1", "toolName": "read_file", "args": {"path": "a.rs"}});
        assert_eq!(shown(read, result("x\ny\n", json!({})))[1], "  2 lines");
    }

    #[test]
    fn a_running_call_is_open_with_the_end_of_its_output() {
        let mut calls = CallRows::default();
        for n in 0..3 * MAX_KEPT {
            calls.update(
                &json!({"toolCallId": "c1", "toolName": "bash", "delta": format!("{n}\n")}),
            );
        }
        assert!(calls.running[0].kept.len() <= MAX_KEPT);
        let rows = calls.open_rows(40).join("\n");
        let rows = anstream::adapter::strip_str(&rows).to_string();
        let last = 3 * MAX_KEPT - 1;
        assert!(
            rows.starts_with("[tool] bash\n  ") && rows.ends_with(&format!("  {last}")),
            "{rows}"
        );
    }
}
