//! A conversation as Markdown.
//!
//! Texts of the user and the model are Markdown already. Outside of code blocks, HTML and images in them are escaped: a
//! viewer runs no HTML of a model and loads no image from a host that a model selects.

use super::parts::{Part, Tool, facts, parts, title};
use crate::transcript::Transcript;

/// Returns the current branch as Markdown.
#[must_use]
pub fn markdown(transcript: &Transcript) -> String {
    let mut out = format!("# {}\n\n", plain(&title(transcript)));
    for (name, value) in facts(transcript) {
        out.push_str(&format!("- {name}: {}\n", code(&value)));
    }

    for part in parts(transcript) {
        out.push('\n');
        match part {
            Part::Message { title, time } => {
                out.push_str(&format!("## {}\n\n{}\n", plain(&title), code(&time)));
            }
            Part::Prompt(text) | Part::Text(text) => out.push_str(&defused(&text)),
            Part::Thinking(text) => {
                out.push_str(&format!("Thinking:\n\n{}", fenced("text", &text)));
            }
            Part::Tool(tool) => out.push_str(&tool_text(&tool)),
            Part::Image { mime_type, data } => {
                // Four characters of base64 are three bytes.
                let kib = data.len() / 4 * 3 / 1024;
                out.push_str(&format!("*Image of type {}, {kib} KiB*\n", plain(mime_type)));
            }
            Part::Note(text) => out.push_str(&format!("*{}*\n", plain(&text))),
        }
    }
    out
}

fn tool_text(tool: &Tool) -> String {
    let language = if tool.input.starts_with('{') { "json" } else { "text" };
    let mut out = format!("**Tool {}**\n\n{}", code(&tool.name), fenced(language, &tool.input));

    match &tool.output {
        None => out.push_str("\nNo result.\n"),
        Some(output) => {
            let title = if tool.is_error { "Error" } else { "Result" };
            out.push_str(&format!("\n{title}:\n\n{}", fenced("text", output)));
        }
    }
    out
}

/// Returns a code block whose fence is longer than each run of backticks in the text.
fn fenced(language: &str, text: &str) -> String {
    let fence = "`".repeat(longest_run(text).max(2) + 1);
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{text}{end}{fence}\n")
}

/// Returns one line as inline code.
fn code(line: &str) -> String {
    let ticks = "`".repeat(longest_run(line) + 1);
    let space = if line.starts_with('`') || line.ends_with('`') { " " } else { "" };
    if line.is_empty() { String::new() } else { format!("{ticks}{space}{line}{space}{ticks}") }
}

fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or_default()
}

/// Escapes all of Markdown in one line.
fn plain(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for c in line.chars() {
        if c.is_ascii_punctuation() && !".,:;-()/\"'".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Escapes HTML and images outside of code blocks, also in inline code, and closes an open code block.
///
/// Only fences at the start of a line count: an indented one can belong to a list, whose end also ends the block.
fn defused(text: &str) -> String {
    let mut out = String::with_capacity(text.len());

    let mut fence: Option<&str> = None;
    for line in text.lines() {
        match fence {
            Some(open) if closes(line, open) => fence = None,
            Some(_) => {}
            None => {
                fence = opening_fence(line);
                if fence.is_none() {
                    defuse_line(line, &mut out);
                    out.push('\n');
                    continue;
                }
            }
        }

        // Lines of a code block stay as they are.
        out.push_str(line);
        out.push('\n');
    }

    // An open block would swallow the parts that follow.
    if let Some(fence) = fence {
        out.push_str(fence);
        out.push('\n');
    }
    out
}

/// Returns the fence at the start of a line.
fn opening_fence(line: &str) -> Option<&str> {
    let mark = line.chars().next().filter(|c| ['`', '~'].contains(c))?;
    let (fence, info) = line.split_at(line.len() - line.trim_start_matches(mark).len());
    (fence.len() >= 3 && !(mark == '`' && info.contains('`'))).then_some(fence)
}

fn closes(line: &str, fence: &str) -> bool {
    // As in CommonMark, a closing fence has at most three spaces before it, and may be longer.
    let content = line.trim_start_matches(' ');
    let is_fence = content.trim_end_matches([' ', '\t']).strip_prefix(fence);
    line.len() - content.len() <= 3
        && is_fence.is_some_and(|rest| rest.chars().all(|c| fence.starts_with(c)))
}

/// Appends the escaped line. Viewers disagree about where inline code begins and ends: a table is split into cells
/// before code is parsed. So inline code that contains HTML or an image becomes text with escaped backticks.
fn defuse_line(line: &str, out: &mut String) {
    let mut rest = line;
    while let Some(at) = rest.find('`') {
        let (before, code) = rest.split_at(at);
        escape(before, out);

        let ticks = code.len() - code.trim_start_matches('`').len();
        let (ticks, inner) = code.split_at(ticks);
        let Some(end) = partner(inner, ticks.len()) else {
            // Backticks without a partner are text.
            out.push_str(ticks);
            rest = inner;
            continue;
        };

        let (inner, after) = inner.split_at(end);
        let inner = inner.strip_suffix(ticks).unwrap_or(inner);

        // Compared with the escaped text to find out whether the code contains HTML or an image.
        let mut escaped = String::with_capacity(inner.len());
        escape(inner, &mut escaped);

        let marks = if escaped == inner { ticks.to_owned() } else { "&#96;".repeat(ticks.len()) };
        out.push_str(&marks);
        out.push_str(&escaped);
        out.push_str(&marks);

        rest = after;
    }
    escape(rest, out);
}

/// Returns the end of the next run of exactly `len` backticks.
fn partner(text: &str, len: usize) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = text.get(from..)?.find('`') {
        let start = from + at;
        let run = text.get(start..)?;
        let run = run.len() - run.trim_start_matches('`').len();
        from = start + run;
        if run == len {
            return Some(from);
        }
    }
    None
}

fn escape(text: &str, out: &mut String) {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        let is_tag = c == '<' && next.is_some_and(|c| c.is_ascii_alphabetic() || "/!?".contains(c));
        if is_tag || (c == '!' && next == Some('[')) {
            // An entity, because a backslash before it would escape a backslash.
            out.push_str(if is_tag { "&lt;" } else { "&#33;" });
        } else {
            out.push(c);
        }
    }
}
