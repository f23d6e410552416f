//! Hints after an edit whose old text was not found once: where similar text is.

use std::borrow::Cow;

/// Most line numbers of one hint.
const MAX_LINES: usize = 10;

/// Longest line of the file that a hint shows, in characters.
const MAX_SHOWN: usize = 200;

/// Largest file in which similar lines are searched, in bytes.
const MAX_SEARCHED: usize = 1024 * 1024;

/// Most lines of the old text that are compared.
const MAX_COMPARED: usize = 100;

/// How to find a text that is not in the content.
pub(crate) fn of_missing(content: &[u8], old: &[u8]) -> String {
    const READ: &str = "Read the file again and copy the text from it.";
    if MAX_SEARCHED < content.len() {
        return READ.to_owned();
    }
    let lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
    let wanted: Vec<String> =
        old.split(|byte| *byte == b'\n').take(MAX_COMPARED).map(words).collect();
    let Some(first) = wanted.iter().position(|line| !line.is_empty()) else {
        return READ.to_owned();
    };
    let wanted = wanted.get(first..).unwrap_or_default();
    let known: Vec<String> = lines.iter().map(|line| words(line)).collect();
    // The place at which most lines are the same but for white space.
    let matching = |at: usize| {
        let there = known.get(at..).unwrap_or_default();
        there.iter().zip(wanted).take_while(|(known, wanted)| known == wanted).count()
    };
    let best = (0..known.len()).rev().max_by_key(|at| matching(*at));
    let Some((at, n)) = best.map(|at| (at, matching(at))).filter(|(_, n)| *n != 0) else {
        return format!("No line of the file is like the first line of old_text. {READ}");
    };
    // The last line of old_text may be a part of a line.
    if n == wanted.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1) {
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

/// Names the lines of a text that an edit has found several times.
pub(crate) fn of_several(content: &[u8], places: impl Iterator<Item = usize>) -> String {
    let mut places = places.peekable();
    let (mut line, mut from) = (1, 0);
    let mut lines = Vec::new();
    while let Some(at) = places.next_if(|_| lines.len() < MAX_LINES) {
        line += memchr::memchr_iter(b'\n', content.get(from..at).unwrap_or_default()).count();
        from = at;
        lines.push(line.to_string());
    }
    let more = if places.peek().is_some() { " and others" } else { "" };
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
    text.trim_end().chars().filter(|c| !c.is_control() || *c == '\t').take(MAX_SHOWN).collect()
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
                "From line 3, the file differs from old_text only in white space",
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
    fn lines_of_several_places_are_named() {
        let hint = of_several(b"a\nb\na\n", [0, 4].into_iter());
        assert!(hint.starts_with("It is in the lines 1, 3. "), "{hint}");
        let many = b"a\n".repeat(20);
        let hint = of_several(&many, (0..20).map(|n| 2 * n));
        assert!(
            hint.starts_with("It is in the lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and others. "),
            "{hint}"
        );
    }
}
