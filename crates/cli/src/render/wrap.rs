//! Breaks styled text into rows of a terminal. Used by [`super::Renderer`].

use unicode_width::UnicodeWidthChar;

/// Returns the last rows of a line with styles, at most `most`, each narrower than `columns` and complete in itself.
pub(super) fn last_rows(line: &str, columns: usize, most: usize) -> Vec<String> {
    let (mut rows, mut row, mut used) = (Vec::new(), String::new(), 0);
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
            row.push_str(&sequence);
            if sequence == "\u{1b}[0m" { style.clear() } else { style.push_str(&sequence) }
            continue;
        }
        let c = if c == '\t' { ' ' } else { c };
        let wide = c.width().unwrap_or(0);
        if columns <= used + wide {
            if !style.is_empty() {
                row.push_str("\u{1b}[0m");
            }
            rows.push(std::mem::replace(&mut row, style.clone()));
            used = 0;
        }
        row.push(c);
        used += wide;
    }
    rows.push(row);
    let begin = rows.len().saturating_sub(most.max(1));
    rows.split_off(begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_narrow_and_repeat_their_style() {
        assert_eq!(last_rows("abcdefgh", 4, 9), ["abc", "def", "gh"]);
        assert_eq!(last_rows("abcdefgh", 4, 2), ["def", "gh"]);
        let bold = "\u{1b}[1mabcde\u{1b}[0mf";
        assert_eq!(last_rows(bold, 4, 9), ["\u{1b}[1mabc\u{1b}[0m", "\u{1b}[1mde\u{1b}[0mf"]);
        assert_eq!(last_rows("漢字", 4, 9), ["漢", "字"]);
    }
}
