//! Hints after an edit whose old text was not found once: where similar text is.

use crate::similar_text::{Form, MAX_SEARCHED, differences, find_first};
use quackd_protocol::foreign_text::stripped_lines;
use std::borrow::Cow;

/// Most line numbers of one hint.
const MAX_LINES: usize = 10;

/// Longest line of the file that a hint shows, in characters.
const MAX_SHOWN: usize = 200;

/// Most lines of the old text that are compared.
const MAX_COMPARED: usize = 100;

/// How to find a text that is not in the content.
pub(crate) fn of_missing(content: &[u8], old: &[u8]) -> String {
    const READ: &str = "Read the file again and copy the text from it.";
    if MAX_SEARCHED < content.len() {
        return READ.to_owned();
    }

    if let Some((line, only)) = differing(content, old) {
        return format!("From line {line}, the file differs from old_text only in {only}. {READ}");
    }

    let lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
    let old_lines: Vec<String> =
        old.split(|byte| *byte == b'\n').take(MAX_COMPARED).map(words).collect();
    let Some(first) = old_lines.iter().position(|line| !line.is_empty()) else {
        return READ.to_owned();
    };
    let old_lines = old_lines.get(first..).unwrap_or_default();
    let known: Vec<String> = lines.iter().map(|line| words(line)).collect();

    // The place at which most lines are the same but for white space.
    let matching = |at: usize| {
        let there = known.get(at..).unwrap_or_default();
        there.iter().zip(old_lines).take_while(|(known, line)| known == line).count()
    };

    // `max_by_key` returns the last of several maxima, so the reversed order selects the first place.
    let best = (0..known.len()).rev().max_by_key(|at| matching(*at));
    let Some((at, n)) = best.map(|at| (at, matching(at))).filter(|(_, n)| *n != 0) else {
        return format!("No line of the file is like the first line of old_text. {READ}");
    };

    // The last line of old_text may be a part of a line.
    if n == old_lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1) {
        return format!(
            "From line {}, the file differs from old_text only in white space, such as tabs, spaces or empty lines. {READ}",
            at + 1
        );
    }

    let differs = at + n;
    let shown = lines.get(differs).map(|line| shown(line)).unwrap_or_default();
    format!(
        "From line {}, the file is like old_text, and line {} differs: {shown}\n{READ}",
        at + 1,
        differs + 1
    )
}

/// Finds the first text that differs only in form. Returns its line, and the words for the differences.
fn differing(content: &[u8], old: &[u8]) -> Option<(usize, String)> {
    let (content, old) = (String::from_utf8_lossy(content), String::from_utf8_lossy(old));
    // A line is not wanted for its blanks alone.
    let range = find_first(&content, &old, Form::ALL).filter(|_| !old.trim().is_empty())?;

    let line = content.get(..range.start)?.matches('\n').count() + 1;
    let text = content.get(range)?;
    let words = differences(text, &old, Form::ALL).into_iter().map(|form| match form {
        Form::LineEnds if text.contains('\r') => "line ends (the file has CRLF)",
        Form::LineEnds => "line ends (the file has LF)",
        Form::TrailingBlanks => "trailing spaces",
        Form::Blanks if text.contains('\t') != old.contains('\t') => "tabs against spaces",
        Form::Blanks => "the number of spaces",
        Form::Typographic => "typographic quotes, dashes or spaces",
        Form::Unicode => "the Unicode form of letters (NFC against NFD)",
    });

    let words: Vec<_> = words.collect();
    let (last, others) = words.split_last()?;
    let and = if others.is_empty() { String::new() } else { format!("{} and ", others.join(", ")) };
    Some((line, format!("{and}{last}")))
}

/// Names the lines of a text that an edit has found `count` times. `places` are the first of them.
pub(crate) fn of_several(content: &[u8], count: usize, places: &[usize]) -> String {
    let (mut line, mut from) = (1, 0);
    let mut lines = Vec::new();

    for &at in places.iter().take(MAX_LINES) {
        line += memchr::memchr_iter(b'\n', content.get(from..at).unwrap_or_default()).count();
        from = at;
        lines.push(line.to_string());
    }

    let more = if lines.len() < count { " and others" } else { "" };
    format!(
        "It is in the lines {}{more}. Add lines around it until it is unique, or make one edit for each.",
        lines.join(", ")
    )
}

/// The words of a line, with single spaces.
fn words(line: &[u8]) -> String {
    String::from_utf8_lossy(line).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn shown(line: &[u8]) -> String {
    let text: Cow<'_, str> = String::from_utf8_lossy(line);
    stripped_lines(text.trim_end()).chars().take(MAX_SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_place_is_named() {
        let file = b"use x;\n\ndef a():\n    x = 1\n    y = 2\n\ndef b():\n    x = 1\n";
        for (old, expected) in [
            (
                "def a():\n\tx = 1",
                "From line 3, the file differs from old_text only in tabs against spaces. ",
            ),
            (
                "\ndef a():  \r\n\tx = 1",
                "From line 2, the file differs from old_text only in line ends (the file has LF), trailing spaces and tabs against spaces. ",
            ),
            ("x = 1\ny = 2", "From line 4, the file differs from old_text only in white space"),
            (
                "x =  1",
                "From line 4, the file differs from old_text only in the number of spaces. ",
            ),
            (
                "def b():\n    x = 1\n    z = 3\n",
                "From line 7, the file is like old_text, and line 9 differs: ",
            ),
            (
                "def a():\n    x = 3\n",
                "From line 3, the file is like old_text, and line 4 differs:     x = 1\n",
            ),
            ("def c():\n", "No line of the file is like the first line of old_text."),
            ("\n\n\n", "Read the file again"),
        ] {
            let hint = of_missing(file, old.as_bytes());
            assert!(hint.starts_with(expected), "{old:?}: {hint}");
            assert!(hint.ends_with("copy the text from it."), "{hint}");
        }
    }

    #[test]
    fn characters_that_look_alike_are_named() {
        let file = "a\nsay \u{201c}caf\u{e9}\u{201d} \n".as_bytes();
        for (old, expected) in [
            ("say \"caf\u{e9}\"", "typographic quotes, dashes or spaces. "),
            ("\u{201c}cafe\u{301}\u{201d}", "the Unicode form of letters (NFC against NFD). "),
            (
                "\"cafe\u{301}\"\n",
                "trailing spaces, typographic quotes, dashes or spaces and the Unicode form",
            ),
        ] {
            let expected =
                format!("From line 2, the file differs from old_text only in {expected}");
            let hint = of_missing(file, old.as_bytes());
            assert!(hint.starts_with(&expected), "{old:?}: {hint}");
        }
        let hint = of_missing(b"a\r\nb\r\n", b"a\nb");
        assert!(hint.contains("only in line ends (the file has CRLF). "), "{hint}");
    }

    #[test]
    fn lines_of_several_places_are_named() {
        let hint = of_several(b"a\nb\na\n", 2, &[0, 4]);
        assert!(hint.starts_with("It is in the lines 1, 3. "), "{hint}");
        let many = b"a\n".repeat(20);
        let hint = of_several(&many, 20, &[0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]);
        assert!(
            hint.starts_with("It is in the lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and others. "),
            "{hint}"
        );
    }
}
