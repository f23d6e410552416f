//! Sanitizes text of commands and models for a terminal, so that it cannot control the terminal. Used by the renderer
//! for all text of events.

use quackd_protocol::foreign_text::UnsafeCharFilter;

/// Maximum length of an escape sequence, in characters. A longer one is shown as text.
const MAX_SEQUENCE: usize = 64;

/// Sanitizes a stream of text. Removes colors and cursor movements and turns a carriage return into a line end. All
/// other unsafe characters ([`quackd_protocol::foreign_text`]) become `�`.
#[derive(Debug, Default)]
pub(crate) struct Sanitizer {
    state: EscapeState,
    filter: UnsafeCharFilter,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Text,
    /// After a carriage return: a line end, or the first half of CR LF.
    Return,
    /// After ESC.
    Escape,
    /// After `ESC [` and this number of characters.
    Sequence(usize),
}

impl Sanitizer {
    /// Appends the sanitized `text` to `out`. Of all control characters only `\n` and `\t` remain.
    pub(crate) fn feed(&mut self, text: &str, out: &mut String) {
        for c in text.chars() {
            self.state = match (self.state, c) {
                (EscapeState::Text, c) => self.plain(c, out),
                (EscapeState::Return, '\r') => EscapeState::Return,
                (EscapeState::Return, '\n') => self.plain('\n', out),
                (EscapeState::Return, c) => {
                    self.plain('\n', out);
                    self.plain(c, out)
                }
                (EscapeState::Escape, '[') => EscapeState::Sequence(0),
                (EscapeState::Sequence(n), ' '..='?') if n < MAX_SEQUENCE => {
                    EscapeState::Sequence(n + 1)
                }
                (EscapeState::Sequence(_), '@'..='~') => EscapeState::Text,
                (EscapeState::Escape | EscapeState::Sequence(_), c) => {
                    self.plain(char::REPLACEMENT_CHARACTER, out);
                    self.plain(c, out)
                }
            };
        }
    }

    fn plain(&mut self, c: char, out: &mut String) -> EscapeState {
        match c {
            '\x1b' => return EscapeState::Escape,
            '\r' => return EscapeState::Return,
            '\n' | '\t' => self.filter.feed(c, out),
            c if c.is_control() => self.filter.feed(char::REPLACEMENT_CHARACTER, out),
            c => self.filter.feed(c, out),
        }
        EscapeState::Text
    }

    /// Ends the text. An incomplete sequence becomes `�`.
    pub(crate) fn finish(&mut self, out: &mut String) {
        self.filter.finish(out);
        if matches!(self.state, EscapeState::Escape | EscapeState::Sequence(_)) {
            out.push(char::REPLACEMENT_CHARACTER);
        }
        self.state = EscapeState::Text;
    }
}

/// Returns the sanitized text.
pub(crate) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut cleaner = Sanitizer::default();
    cleaner.feed(text, &mut out);
    cleaner.finish(&mut out);
    out
}

/// Returns the sanitized text on one line, cut to `max_chars` and marked with `...`. A line end becomes `\n`.
pub(crate) fn one_line(text: &str, max_chars: usize) -> String {
    // Sanitizing removes escape sequences. Four times the characters leave enough to fill the line.
    let end = text.char_indices().nth(max_chars.saturating_mul(4)).map_or(text.len(), |(at, _)| at);

    let text = clean(text.get(..end).unwrap_or_default().trim_end_matches(['\r', '\n']));
    let mut line = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == max_chars {
            line.push_str("...");
            break;
        }
        match c {
            '\n' => line.push_str("\\n"),
            '\t' => line.push(' '),
            c => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_taken_out_or_made_visible() {
        for (given, shown) in [
            ("plain äöü 漢\tx\n", "plain äöü 漢\tx\n"),
            ("\x1b[31mred\x1b[0m \x1b[38;5;200mpink\x1b[m", "red pink"),
            ("\x1b[2J\x1b[H\x1b[?25lgone", "gone"),
            ("\x1b]0;title\x07x", "\u{fffd}]0;title\u{fffd}x"),
            ("\x1b(0\x1b", "\u{fffd}(0\u{fffd}"),
            ("\x1b[31", "\u{fffd}"),
            ("\x1b[31\n", "\u{fffd}\n"),
            ("a\r\nb\r\r\nc", "a\nb\nc"),
            ("10%\r20%\r30%\n", "10%\n20%\n30%\n"),
            ("a\u{7}b\u{7f}c\u{9b}31md\0", "a\u{fffd}b\u{fffd}c\u{fffd}31md\u{fffd}"),
            ("safe\u{202e}cod.exe\u{2066}", "safe\u{fffd}cod.exe\u{fffd}"),
            ("a\u{200e}b\u{2028}c\u{e0041}", "a\u{fffd}b\u{fffd}c\u{fffd}"),
            ("👩\u{200d}💻 é\u{200d}\x1b[1m", "👩\u{200d}💻 é\u{fffd}"),
            ("é\u{200d}\r\né", "é\u{fffd}\né"),
        ] {
            assert_eq!(clean(given), shown, "{given:?}");
        }
    }

    #[test]
    fn pieces_give_what_the_whole_gives() {
        let whole = "a\x1b[1;31mb\x1b[0mc\r\nd\re\x1b]x\u{202e}\n👩\u{200d}💻\u{200d}\n";
        let mut cleaner = Sanitizer::default();
        let mut pieces = String::new();
        for c in whole.chars() {
            cleaner.feed(c.encode_utf8(&mut [0; 4]), &mut pieces);
        }
        cleaner.finish(&mut pieces);
        assert_eq!(pieces, clean(whole));
    }

    #[test]
    fn a_sequence_without_end_hides_nothing_behind_it() {
        let text = format!("\x1b[{}visible", "1;".repeat(1000));
        assert!(clean(&text).contains("visible"));
    }

    #[test]
    fn a_line_is_one_line_of_bounded_length() {
        for (given, shown) in [
            ("abc", "abc"),
            ("abcd", "abcd"),
            ("abcde", "abcd..."),
            ("a\nb\n", "a\\nb"),
            ("\ta\x1b[1mb", " ab"),
            ("\u{202e}", "\u{fffd}"),
        ] {
            assert_eq!(one_line(given, 4), shown, "{given:?}");
        }
        assert!(one_line(&"\u{1}".repeat(1 << 20), 120).chars().count() <= 123);
    }
}
