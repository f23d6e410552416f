//! Breaks styled text into rows of a terminal. Used by the parts of the renderer.

use crate::display::width;
use unicode_width::UnicodeWidthChar;

const RESET: &str = "\u{1b}[0m";

/// Positions at which a row may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrap {
    /// After a blank, if there is one.
    Words,
    Anywhere,
}

/// A row that is being filled.
#[derive(Debug, Default)]
struct Row {
    text: String,
    used: usize,
    /// Byte after the last blank, with the columns and the style up to it.
    blank: Option<(usize, usize, String)>,
}

/// Width of a text without its styles, in columns.
pub(super) fn styled_width(text: &str) -> usize {
    width(&anstream::adapter::strip_str(text).to_string())
}

/// Breaks a line with styles into rows narrower than `columns`, each complete in itself. The first begins with the first
/// prefix, the others with the second one.
pub(super) fn rows(line: &str, columns: usize, wrap: Wrap, prefixes: (&str, &str)) -> Vec<String> {
    let mut rows = Vec::new();
    let (first_indent, indent) = (styled_width(prefixes.0), styled_width(prefixes.1));
    // A row has room for one wide character at least.
    let columns = columns.max(indent.max(first_indent) + 3);

    let mut row = Row { text: prefixes.0.to_owned(), used: first_indent, blank: None };
    // Styles that are in force, which the next row repeats.
    let mut style = String::new();
    let mut chars = line.chars();

    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            let mut sequence = String::from(c);
            for c in chars.by_ref() {
                sequence.push(c);
                if c.is_ascii_alphabetic() {
                    break;
                }
            }
            row.text.push_str(&sequence);
            if sequence == RESET {
                style.clear();
            } else {
                style.push_str(&sequence);
            }
            continue;
        }

        let c = if c == '\t' { ' ' } else { c };
        let wide = c.width().unwrap_or(0);
        if columns <= row.used + wide {
            if c == ' ' && wrap == Wrap::Words {
                // The blank is the break.
                row.blank = Some((row.text.len(), row.used, style.clone()));
            }
            let (end, used, then) = match row.blank.take().filter(|_| wrap == Wrap::Words) {
                Some(blank) => blank,
                None => (row.text.len(), row.used, style.clone()),
            };

            let rest = row.text.split_off(end);
            let full = row.text.trim_end_matches(' ');
            rows.push(if then.is_empty() { full.to_owned() } else { format!("{full}{RESET}") });
            row.text = format!("{}{then}{rest}", prefixes.1);
            row.used = indent + (row.used - used);
            if c == ' ' && wrap == Wrap::Words {
                continue;
            }
        }

        row.text.push(c);
        row.used += wide;

        if c == ' ' && wrap == Wrap::Words {
            row.blank = Some((row.text.len(), row.used, style.clone()));
        }
    }

    rows.push(row.text);
    rows
}

/// Returns the last rows of a line with styles, at most `most`.
pub(super) fn last_rows(line: &str, columns: usize, most: usize) -> Vec<String> {
    let mut rows = rows(line, columns, Wrap::Anywhere, ("", ""));
    let begin = rows.len().saturating_sub(most.max(1));
    rows.split_off(begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_narrow_and_repeat_their_style() {
        let rows = |line: &str| rows(line, 4, Wrap::Anywhere, ("", ""));
        assert_eq!(rows("abcdefgh"), ["abc", "def", "gh"]);
        assert_eq!(last_rows("abcdefgh", 4, 2), ["def", "gh"]);
        let bold = "\u{1b}[1mabcde\u{1b}[0mf";
        assert_eq!(rows(bold), ["\u{1b}[1mabc\u{1b}[0m", "\u{1b}[1mde\u{1b}[0mf"]);
        assert_eq!(rows("漢字"), ["漢", "字"]);
    }

    #[test]
    fn words_stay_whole_if_they_fit() {
        let rows = |line: &str| rows(line, 8, Wrap::Words, ("- ", "  "));
        assert_eq!(rows("ab cd ef gh"), ["- ab cd", "  ef gh"]);
        assert_eq!(rows("abcdefgh ij"), ["- abcde", "  fgh", "  ij"]);
        assert_eq!(rows("abcde fg"), ["- abcde", "  fg"]);
        let styled = "ab \u{1b}[1mcdefg\u{1b}[0m";
        assert_eq!(rows(styled), ["- ab", "  \u{1b}[1mcdefg\u{1b}[0m"]);
        assert_eq!(rows(""), ["- "]);
    }
}
