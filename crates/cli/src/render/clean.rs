//! Text from a command or a model as a terminal may show it: nothing in it steers anything. Used by the
//! renderer for everything that an event brings.

use crate::unseen::Sieve;

/// Longest escape sequence that is taken out as a whole; what is longer is not one.
const MAX_SEQUENCE: usize = 64;

/// Cleans a text that comes in pieces. Colours and cursor movements are taken out, a carriage return
/// begins a new line, every other control character becomes `�`, and so does what is not seen
/// ([`crate::unseen`]).
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    state: State,
    sieve: Sieve,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// A carriage return: the end of a line, or half of one.
    Return,
    /// ESC.
    Escape,
    /// `ESC [` and so many characters.
    Sequence(usize),
}

impl Cleaner {
    /// Appends what of `text` can be shown to `out`. Only `\n` and `\t` are left of all controls.
    pub(crate) fn feed(&mut self, text: &str, out: &mut String) {
        for c in text.chars() {
            self.state = match (self.state, c) {
                (State::Text, c) => self.plain(c, out),
                (State::Return, '\r') => State::Return,
                (State::Return, '\n') => self.plain('\n', out),
                (State::Return, c) => {
                    self.plain('\n', out);
                    self.plain(c, out)
                }
                (State::Escape, '[') => State::Sequence(0),
                (State::Sequence(n), ' '..='?') if n < MAX_SEQUENCE => State::Sequence(n + 1),
                (State::Sequence(_), '@'..='~') => State::Text,
                (State::Escape | State::Sequence(_), c) => {
                    self.plain(char::REPLACEMENT_CHARACTER, out);
                    self.plain(c, out)
                }
            };
        }
    }

    fn plain(&mut self, c: char, out: &mut String) -> State {
        match c {
            '\x1b' => return State::Escape,
            '\r' => return State::Return,
            '\n' | '\t' => self.sieve.feed(c, out),
            c if c.is_control() => self.sieve.feed(char::REPLACEMENT_CHARACTER, out),
            c => self.sieve.feed(c, out),
        }
        State::Text
    }

    /// The text has ended: half a sequence is none.
    pub(crate) fn finish(&mut self, out: &mut String) {
        self.sieve.finish(out);
        if matches!(self.state, State::Escape | State::Sequence(_)) {
            out.push(char::REPLACEMENT_CHARACTER);
        }
        self.state = State::Text;
    }
}

/// A whole text, cleaned.
pub(crate) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut cleaner = Cleaner::default();
    cleaner.feed(text, &mut out);
    cleaner.finish(&mut out);
    out
}

/// A text on one line, cut to `max_chars` with `...` after it if it was longer. A line end is shown as
/// `\n`.
pub(crate) fn one_line(text: &str, max_chars: usize) -> String {
    // Escape sequences may go; what is left of a text of this many characters is enough to fill a line.
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
        let mut cleaner = Cleaner::default();
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
