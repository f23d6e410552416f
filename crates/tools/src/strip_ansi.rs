//! Removes terminal control sequences from the output of commands.
//!
//! Removes escape sequences, and every control character except line end, carriage return and tab. The files of
//! long outputs keep the bytes, and every count is of bytes as printed. A program cannot hide much output: a
//! sequence is within one line and has at most [`MAX_SEQUENCE`] bytes. Otherwise only its introducer is
//! removed. This also bounds how far back a cut in the output can matter.
//!
//! Called by [`crate::bash_text`] and [`crate::jobs`]. Clients that follow a session receive the raw output
//! piece by piece; a client that prints it on a terminal strips it for that terminal.

use crate::live;
use crate::truncate::{self, DecodedPart, ShownRange};
use anstyle_parse::state::{State, state_change};

/// Maximum length of an escape sequence in bytes. Links and window titles are shorter, images are longer.
pub(crate) const MAX_SEQUENCE: usize = 4096;

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;
const CANCEL: u8 = 0x18;
const SUBSTITUTE: u8 = 0x1a;

/// Length in bytes of the escape character and the character that gives the kind of sequence.
const INTRODUCER: usize = 2;

/// Returns as much of the start as fits into `max_text` bytes of text.
pub(crate) fn head(bytes: &[u8], max_text: usize) -> DecodedPart {
    truncate::head_of(runs(bytes), bytes.len(), max_text)
}

/// Returns as much of the end as fits into `max_text` bytes of text, without the first `lead` bytes.
///
/// Bytes from the middle of an output may begin within a sequence. With a lead of [`MAX_SEQUENCE`] bytes, no
/// part of that sequence is shown.
pub(crate) fn tail(bytes: &[u8], lead: usize, max_text: usize) -> DecodedPart {
    let runs: Vec<ShownRange<'_>> = runs(bytes).filter_map(|run| run.after(lead)).collect();
    truncate::tail_of(&runs, bytes.len(), max_text)
}

/// Converts a stream of output to text, piece by piece. An incomplete character or sequence at the end of a
/// piece waits for the next piece.
#[derive(Debug, Default)]
pub struct PlainText {
    carry: Vec<u8>,
}

impl PlainText {
    /// Returns the text of the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> String {
        self.carry.extend_from_slice(bytes);
        let begun = self.carry.split_off(self.carry.len() - unfinished(&self.carry));
        let text = head(&self.carry, usize::MAX).text;
        self.carry = begun;
        text
    }

    /// Returns the text of the remaining bytes.
    pub fn finish(&mut self) -> String {
        head(&std::mem::take(&mut self.carry), usize::MAX).text
    }
}

/// Returns the start of the first character or sequence at or after `lead`.
pub(crate) fn begin_after(bytes: &[u8], lead: usize) -> usize {
    runs(bytes).find_map(|run| run.after(lead)).map_or(bytes.len(), |run| run.at)
}

/// Returns the number of bytes at the end that may begin a character or a sequence.
pub(crate) fn unfinished(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    let mut last = 0;
    while let Some(step) = step(rest) {
        match step {
            Token::Begun { .. } => return rest.len(),
            Token::Shown(n) => last = live::unfinished(rest.get(..n).unwrap_or_default()),
            Token::Hidden(_) => last = 0,
        }
        rest = rest.get(step.len()..).unwrap_or_default();
    }
    last
}

/// Token at the start of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    /// Text of this length in bytes.
    Shown(usize),
    /// Bytes that are not shown.
    Hidden(usize),
    /// The whole input is the start of a sequence. If its end is missing, only `hidden` bytes are not shown.
    Begun { hidden: usize },
}

impl Token {
    fn len(self) -> usize {
        match self {
            Self::Shown(n) | Self::Hidden(n) | Self::Begun { hidden: n } => n,
        }
    }
}

/// Returns the visible parts of an output in order.
fn runs(bytes: &[u8]) -> impl Iterator<Item = ShownRange<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = bytes.get(at..)?;
            let step = step(rest)?;
            let run = ShownRange { at, bytes: rest.get(..step.len())? };
            at += step.len();
            if matches!(step, Token::Shown(_)) {
                return Some(run);
            }
        }
    })
}

/// Returns the next token, never empty, or `None` at the end.
fn step(bytes: &[u8]) -> Option<Token> {
    let (first, rest) = bytes.split_first()?;
    let step = match hidden_control(bytes) {
        Some(_) if *first == ESCAPE => sequence(bytes),
        Some(n) => Token::Hidden(n),
        None => {
            let is_end =
                |at: &usize| bytes.get(*at..).is_some_and(|at| hidden_control(at).is_some());
            let n = (1..=rest.len()).find(is_end).unwrap_or(bytes.len());
            Token::Shown(n)
        }
    };
    Some(step)
}

/// Returns the length in bytes of a hidden control character, if there is one. U+0080 to U+009F are hidden, but
/// begin no sequence: in texts they come from a wrong decoding.
fn hidden_control(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [b'\n' | b'\r' | b'\t', ..] => None,
        [0..=0x1f | 0x7f, ..] => Some(1),
        [0xc2, 0x80..=0x9f, ..] => Some(2),
        _ => None,
    }
}

/// Parses the input after an escape character.
fn sequence(bytes: &[u8]) -> Token {
    let mut state = State::Escape;
    for (at, byte) in bytes.iter().copied().enumerate().take(MAX_SEQUENCE).skip(1) {
        let next = match state {
            State::OscString | State::SosPmApcString | State::DcsEntry => match byte {
                // A line end is never hidden.
                b'\n' => return Token::Hidden(INTRODUCER),
                BELL if state == State::OscString => State::Ground,
                CANCEL | SUBSTITUTE => State::Ground,
                ESCAPE => match bytes.get(at + 1) {
                    Some(b'\\') => return Token::Hidden(at + 2),
                    // Another sequence ends this one.
                    Some(_) => return Token::Hidden(at),
                    None => break,
                },
                _ => state,
            },
            // No other sequence contains such bytes.
            _ if byte < b' ' || !byte.is_ascii() => return Token::Hidden(at),
            _ => state_change(state, byte).0,
        };

        match next {
            State::Ground => return Token::Hidden(at + 1),
            State::Anywhere => (),
            // All these states end in the same way.
            State::DcsParam | State::DcsIntermediate | State::DcsIgnore | State::DcsPassthrough => {
                state = State::DcsEntry;
            }
            next => state = next,
        }
    }

    if MAX_SEQUENCE <= bytes.len() {
        return Token::Hidden(INTRODUCER);
    }
    // A string without an end may be ordinary text after a stray introducer.
    let is_string = matches!(state, State::OscString | State::SosPmApcString | State::DcsEntry);
    Token::Begun { hidden: if is_string { INTRODUCER } else { bytes.len() } }
}

impl<'a> ShownRange<'a> {
    /// Returns the part at or after `lead`, without the rest of an incomplete character.
    fn after(self, lead: usize) -> Option<Self> {
        let skip = lead.saturating_sub(self.at);
        let rest = self.bytes.get(skip..)?;
        // Continuation bytes at the start belong to a character before `lead`.
        let is_rest = |byte: &&u8| 0 < skip && **byte & 0b1100_0000 == 0b1000_0000;
        let n_rest = rest.iter().take(3).take_while(is_rest).count();
        let bytes = rest.get(n_rest..)?;
        (!bytes.is_empty()).then_some(Self { at: self.at + skip + n_rest, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        head(bytes, usize::MAX).text
    }

    #[test]
    fn what_only_steers_a_terminal_is_left_out_and_everything_else_stays() {
        let cases: [(&[u8], &str); 24] = [
            ("plain äöü 漢\tx\r\n".as_bytes(), "plain äöü 漢\tx\r\n"),
            (b"\x1b[31mred\x1b[0m \x1b[38;5;200mpink\x1b[m", "red pink"),
            (b"\x1b[2J\x1b[H\x1b[?25lgone\x1b[1 q\x1b[>0;1c", "gone"),
            // Titles and links, ended by a bell or by the standard terminator.
            (b"\x1b]0;title\x07x\x1b]8;;http://a/\xc3\xa9\x1b\\link\x1b]8;;\x1b\\", "xlink"),
            (b"\x1bP1$r0m\x1b\\a\x1b_app\x1b\\b\x1b^pm\x1b\\c\x1bXsos\x1b\\d", "abcd"),
            // A bell ends titles only.
            (b"\x1bPq#0\x07;2\x1b\\a", "a"),
            (b"\x1b(B\x1b)0\x1b=\x1b>\x1b7\x1b8\x1bM\x1bca", "a"),
            (b"a\0b\x07c\x08d\x0be\x0cf\x7fg\x18h", "abcdefgh"),
            ("a\u{85}b\u{9b}31mc\u{a0}d".as_bytes(), "ab31mc\u{a0}d"),
            // Another sequence, a control character and a byte outside ASCII end a sequence.
            (b"\x1b[31\x1b[1ma", "a"),
            (b"\x1b[31\na\x1b[3\tb", "\na\tb"),
            ("\x1b[3é\x1bé".as_bytes(), "éé"),
            (b"\x1b]0;t\x1b[1ma", "a"),
            (b"\x1b]0;t\x18a\x1bPx\x1aa", "aa"),
            (b"\x1b\x1b\x1b[1ma", "a"),
            (b"\x1b\na", "\na"),
            // A line end is never hidden.
            (b"\x1b]0;title\nnext\x07", "0;title\nnext"),
            (b"\x1bP1\nnext", "1\nnext"),
            // Without an end.
            (b"a\x1b[31", "a"),
            (b"a\x1b", "a"),
            (b"a\x1b]0;title", "a0;title"),
            // Invalid UTF-8 is replaced, and not joined across a sequence.
            (b"\xe2\x82\x1b[1m\xac", "\u{fffd}\u{fffd}"),
            (b"\xc2\x1b[1m\x9b\xff", "\u{fffd}\u{fffd}\u{fffd}"),
            (b"", ""),
        ];
        for (given, shown) in cases {
            assert_eq!(text(given), shown, "{given:?}");
            assert_eq!(tail(given, 0, usize::MAX).text, shown, "{given:?}");
            assert_eq!(head(given, usize::MAX).n_bytes, given.len(), "{given:?}");
        }
    }

    #[test]
    fn what_is_too_long_for_a_sequence_is_shown_but_for_its_beginning() {
        for (begin, end) in [("\x1b[", "m"), ("\x1b]", "\x07"), ("\x1bP", "\x1b\\")] {
            let body = |n: usize| "1;".repeat(MAX_SEQUENCE).get(..n).unwrap().to_owned();
            let n = MAX_SEQUENCE - begin.len() - end.len();
            assert_eq!(text(format!("{begin}{}{end}x", body(n)).as_bytes()), "x", "{begin:?}");
            let longer = body(MAX_SEQUENCE);
            let shown = text(format!("{begin}{longer}{end}x").as_bytes());
            assert!(shown.starts_with(&longer) && shown.ends_with('x'), "{begin:?}");
        }
    }

    /// Bytes with every kind of character and sequence that a cut could break.
    const PIECES: &[u8] =
        b"a\x1b[1;31mb\xc3\xa9\x1b]0;t\xe2\x82\xac\x07c\xf0\x9f\xa6\x86\xff\x1b(Bd\x1bP1q\x1b\\e\n\xc2\x9bf";

    #[test]
    fn two_pieces_are_the_whole_wherever_it_is_cut() {
        let whole = text(PIECES);
        for cut in 0..=PIECES.len() {
            let (first, _) = PIECES.split_at(cut);
            let (first, rest) = PIECES.split_at(cut - unfinished(first));
            assert_eq!(text(first) + &text(rest), whole, "cut at {cut}");
        }
        for max in 0..=whole.len() {
            let (first, last) = (head(PIECES, max), tail(PIECES, 0, max));
            assert_eq!(first.text, whole.get(..whole.floor_char_boundary(max)).unwrap());
            let begin = whole.ceil_char_boundary(whole.len() - max);
            assert_eq!(last.text, whole.get(begin..).unwrap());
            // The counts are of printed bytes, so the remaining bytes give the remaining text.
            assert_eq!(first.text + &text(&PIECES[first.n_bytes..]), whole, "{max}");
            assert_eq!(text(&PIECES[..PIECES.len() - last.n_bytes]) + &last.text, whole, "{max}");
        }
    }

    #[test]
    fn nothing_of_a_sequence_is_left_behind_a_lead() {
        let titles = format!("\x1b]0;{}\x07é", "t".repeat(MAX_SEQUENCE - 5)).repeat(3);
        for begin in 0..=MAX_SEQUENCE + 1 {
            let bytes = &titles.as_bytes()[begin..];
            let shown = tail(bytes, MAX_SEQUENCE, usize::MAX);
            assert!(shown.text.chars().all(|c| c == 'é'), "from {begin}");
            let from = begin_after(bytes, MAX_SEQUENCE);
            assert!(MAX_SEQUENCE <= from && text(&bytes[from..]) == shown.text, "from {begin}");
        }
    }
}
