//! Sanitizes names and values of a hostile tree for display: one short line without terminal control characters.
//! Called by the modules next to it and by other code that displays a path.

/// Returns `text` on one line, cut to `max_chars` characters with `…` as the last.
#[must_use]
pub fn plain(text: &str, max_chars: usize) -> String {
    let mut shown = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == max_chars {
            shown.pop();
            shown.push('…');
            break;
        }
        shown.push(if is_steering(c) { '\u{fffd}' } else { c });
    }
    shown
}

/// Returns true for control characters, and for characters that reorder or hide the text around them.
fn is_steering(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_one_short_line() {
        assert_eq!(plain("a\nb\u{1b}[1m\u{202e}c", 99), "a\u{fffd}b\u{fffd}[1m\u{fffd}c");
        assert_eq!(plain("abcdef", 6), "abcdef");
        assert_eq!(plain("abcdefg", 6), "abcde…");
        assert_eq!(plain(&"ä".repeat(9), 3), "ää…");
    }
}
