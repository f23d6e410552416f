//! White space as JavaScript has it. The first clients and tools were written in JavaScript.

/// Whether `\s` and `trim` of JavaScript treat a character as white space: they include a byte order mark, but not the
/// next-line control.
#[must_use]
pub fn is_space(c: char) -> bool {
    (c.is_whitespace() && c != '\u{85}') || c == '\u{feff}'
}

/// `text.trim()`.
#[must_use]
pub fn trim(text: &str) -> &str {
    text.trim_matches(is_space)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_is_that_of_javascript() {
        let space = "\t\n\u{b}\u{c}\r \u{a0}\u{1680}\u{2000}\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}";
        assert!(space.chars().all(is_space));
        assert!(!"\u{85}\u{200b}\u{180e}x\0".chars().any(is_space));
        assert_eq!(trim("\u{feff} a b\u{a0}"), "a b");
    }
}
