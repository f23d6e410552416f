//! Results of tools as a model reads them: bounded by its window, and without the content of binary files.

use super::routes::ToolRoute;
use quackd_protocol::tools::READ_FILE;

/// Limits of a result, and of the content of a file, in bytes.
const MAX_RESULT: usize = 100 * 1024;
const MAX_FILE: usize = 50 * 1024;

/// Smallest limit of a result in bytes, regardless of the window.
const LEAST: usize = 4 * 1024;

/// Characters at the start of a file that are searched for signs of binary content.
const SAMPLE: usize = 8000;

/// Space for the note of a tool about the rest of a file, in bytes.
const NOTE: usize = 512;

/// Returns the bytes that a result may have for a window of this many tokens: a quarter of it, with
/// four bytes for each token.
fn room(window: u64) -> usize {
    usize::try_from(window).unwrap_or(usize::MAX).max(LEAST)
}

/// Returns the bytes of a file that the tool is asked to read.
pub(super) fn file_bytes(window: u64) -> u64 {
    u64::try_from(room(window).min(MAX_FILE)).unwrap_or(u64::MAX)
}

/// Returns the text of a successful or failed call, for a model with a window of this many tokens.
pub(super) fn bounded(text: String, route: Option<&ToolRoute>, window: u64) -> String {
    match route {
        Some(route) if route.tool == READ_FILE.name => {
            of_file(text, room(window).min(MAX_FILE) + NOTE)
        }
        _ => middle_cut(text, room(window).min(MAX_RESULT)),
    }
}

/// Cuts the content of a file. The tool has cut it at a line and named the next line, but invalid
/// UTF-8 is longer as text.
fn of_file(text: String, limit: usize) -> String {
    if is_binary(&text) {
        return "This is a binary file. A command such as file, xxd or strings shows what is in it."
            .to_owned();
    }
    middle_cut(text, limit)
}

/// Cuts the middle out, because the start and the end of an output say the most.
fn middle_cut(text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let (head, tail) = (text.floor_char_boundary(limit / 2), text.len() - limit / 2);
    let tail = text.ceil_char_boundary(tail);
    let (head_text, rest) =
        (text.get(..head).unwrap_or_default(), text.get(tail..).unwrap_or_default());
    format!("{head_text}\n[... {} bytes are left out ...]\n{rest}", tail - head)
}

fn is_binary(text: &str) -> bool {
    let sample = || text.chars().take(SAMPLE);
    let is_odd = |c: &char| {
        c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{c}' | '\u{1b}') || *c == '\u{fffd}'
    };
    let (all, odd) = (sample().count(), sample().filter(is_odd).count());
    sample().any(|c| c == '\0') || all < odd * 10
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::route;
    use serde_json::json;

    fn read(text: &str, window: u64) -> String {
        let arguments = json!({"path": "a"});
        let route = route("read_file", arguments.as_object().unwrap());
        bounded(text.to_owned(), route.as_ref(), window)
    }

    #[test]
    fn a_file_has_no_more_bytes_than_a_model_reads() {
        assert_eq!((file_bytes(1_000_000), file_bytes(8000)), (51_200, 8000));
        assert!(read(&"é\n".repeat(40_000), 1_000_000).len() <= MAX_FILE + NOTE + 100);
        assert!(read(&"é\n".repeat(40_000), 8000).len() <= 8000 + NOTE + 100);
        let text = format!("{}\n[note]", "x".repeat(MAX_FILE));
        assert_eq!(read(&text, 1_000_000), text);
        assert_eq!(read("a\nb", 0), "a\nb");
    }

    #[test]
    fn binary_content_is_named_and_text_is_not() {
        for binary in ["\u{7f}ELF\0", "\u{1}\u{2}abc", "PNG\u{fffd}\u{fffd}"] {
            assert!(read(binary, 128_000).starts_with("This is a binary file."), "{binary:?}");
        }
        for text in
            ["", "a\tb\r\n\u{1b}[1mc\u{1b}[0m", "naïve 日本語", "one \u{fffd} in a longer text"]
        {
            assert_eq!(read(text, 128_000), text);
        }
    }

    #[test]
    fn other_results_keep_their_beginning_and_end() {
        let text = format!("begin{}end", "x".repeat(200_000));
        let cut = bounded(text.clone(), None, 16_000);
        assert!(cut.starts_with("begin") && cut.ends_with("end") && cut.len() < 16_100);
        assert!(cut.contains("[... 184008 bytes are left out ...]"), "{}", &cut[7990..8100]);
        assert_eq!(bounded("short".to_owned(), None, 16_000), "short");
    }
}
