//! Results of tools as a model reads them: bounded by its window, and without the content of binary files.

use super::tools::ToolRoute;

/// Most bytes of a result, and of the content of a file.
const MAX_RESULT: usize = 100 * 1024;
const MAX_FILE: usize = 50 * 1024;

/// Fewest bytes that a result may have, however small the window is.
const LEAST: usize = 4 * 1024;

/// Characters at the beginning of a file by which a binary one is recognised.
const SAMPLE: usize = 8000;

/// The text of a successful or failed call, for a model with a window of this many tokens.
pub(super) fn bounded(text: String, route: Option<&ToolRoute>, window: u64) -> String {
    // A quarter of the window, with four bytes for each token.
    let room = usize::try_from(window).unwrap_or(usize::MAX).max(LEAST);
    match route {
        Some(route) if route.tool == "read_file" => of_file(text, route, room.min(MAX_FILE)),
        _ => middle_cut(text, room.min(MAX_RESULT)),
    }
}

fn of_file(text: String, route: &ToolRoute, limit: usize) -> String {
    if is_binary(&text) {
        return "This is a binary file. A command such as file, xxd or strings shows what is in it."
            .to_owned();
    }
    if text.len() <= limit {
        return text;
    }
    let first = route.arguments.get("offset").and_then(serde_json::Value::as_u64).unwrap_or(1);
    let head = text.get(..text.floor_char_boundary(limit)).unwrap_or_default();
    let Some((lines, _)) = head.rsplit_once('\n') else {
        return format!("{head}\n[Line {first} is longer than {limit} bytes, which are shown]");
    };
    let n = u64::try_from(lines.split('\n').count()).unwrap_or(u64::MAX);
    let (last, next) = (first.saturating_add(n) - 1, first.saturating_add(n));
    format!(
        "{lines}\n[Lines {first} to {last} shown, at most {limit} bytes. The file continues: offset {next}]"
    )
}

/// Keeps the beginning and the end.
fn middle_cut(text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let (head, tail) = (text.floor_char_boundary(limit / 2), text.len() - limit / 2);
    let tail = text.ceil_char_boundary(tail);
    let (shown, rest) =
        (text.get(..head).unwrap_or_default(), text.get(tail..).unwrap_or_default());
    format!("{shown}\n[... {} bytes are left out ...]\n{rest}", tail - head)
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

    fn read(text: &str, offset: u64, window: u64) -> String {
        let arguments = json!({"path": "a", "offset": offset});
        let route = route("read_file", arguments.as_object().unwrap());
        bounded(text.to_owned(), route.as_ref(), window)
    }

    #[test]
    fn a_file_is_cut_at_a_line_and_the_next_one_is_named() {
        let lines: String = (1..=2000).map(|n| format!("{n:049}\n")).collect();
        let text = read(&lines, 11, 1_000_000);
        assert!(text.len() <= MAX_FILE + 100);
        assert!(
            text.ends_with(
                "\n[Lines 11 to 1034 shown, at most 51200 bytes. The file continues: offset 1035]"
            ),
            "{}",
            &text[text.len() - 200..]
        );
        assert!(read(&lines, 1, 8000).len() <= 8100);
        assert_eq!(read("a\nb", 1, 0), "a\nb");
        let long = read(&"é".repeat(40_000), 3, 128_000);
        assert!(long.ends_with("\n[Line 3 is longer than 51200 bytes, which are shown]"));
    }

    #[test]
    fn binary_content_is_named_and_text_is_not() {
        for binary in ["\u{7f}ELF\0", "\u{1}\u{2}abc", "PNG\u{fffd}\u{fffd}"] {
            assert!(read(binary, 1, 128_000).starts_with("This is a binary file."), "{binary:?}");
        }
        for text in
            ["", "a\tb\r\n\u{1b}[1mc\u{1b}[0m", "naïve 日本語", "one \u{fffd} in a longer text"]
        {
            assert_eq!(read(text, 1, 128_000), text);
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
