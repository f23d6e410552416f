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
