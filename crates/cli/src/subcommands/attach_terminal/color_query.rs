//! Asks the user's terminal for its colors, which programs on a terminal of a session can ask for. An answer that comes too
//! late is removed from what the user types.

use crate::terminal_guard::write_within_blocking;
use quackd_protocol::terminal::{RgbColor, TerminalColors};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use std::io;
use std::time::{Duration, Instant};

/// Queries for the colors of the cursor, the text and the background, and for the kind of terminal, which every terminal
/// answers. The answers have the same order.
const QUERIES: &[u8] = b"\x1b]12;?\x1b\\\x1b]10;?\x1b\\\x1b]11;?\x1b\\\x1b[c";

/// Longest wait for the answers.
const ANSWER_WAIT: Duration = Duration::from_millis(100);

/// Beginnings of the answers about text, background and cursor, and of the last one.
const STARTS: [&[u8]; 4] = [b"\x1b]10;", b"\x1b]11;", b"\x1b]12;", LAST_START];
const LAST_START: &[u8] = b"\x1b[?";

/// Longest incomplete one of them, in bytes.
const MAX_BEGUN: usize = 4;

/// Longest answer, in bytes.
const MAX_ANSWER: usize = 64;

/// Answers of the user's terminal.
#[derive(Debug, Default)]
pub(crate) struct ColorQuery {
    /// Colors of text, background and cursor.
    found: [Option<RgbColor>; 3],
    /// Whether the last answer has arrived: none is expected after it.
    is_complete: bool,
    /// Beginning of an answer.
    held: Vec<u8>,
    /// Input of the user before the end of the wait.
    pub(super) typed_early: Vec<u8>,
}

impl ColorQuery {
    /// Asks the terminal on stdin and stdout, and waits up to 100 ms. Keys such as Ctrl-C keep their meaning. Without a
    /// terminal, nothing is asked.
    pub(crate) fn ask_blocking() -> Self {
        let mut query = Self::default();
        let Ok(before) = tcgetattr(io::stdin()) else { return query };
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        if tcsetattr(io::stdin(), OptionalActions::Now, &quiet).is_ok() {
            query.read_answers_blocking();
        }
        tcsetattr(io::stdin(), OptionalActions::Now, &before).ok();
        query
    }

    fn read_answers_blocking(&mut self) {
        let end = Instant::now() + ANSWER_WAIT;
        if !write_within_blocking(QUERIES, ANSWER_WAIT).is_empty() {
            return;
        }

        let mut begun = Vec::new();
        while !self.is_complete
            && let Some(bytes) = read_until_blocking(end)
        {
            self.take_early(&mut begun, &bytes);
        }
        // Keys, unless they continue an answer.
        let typed = self.without_answers(&begun);
        self.typed_early.extend(typed);
    }

    /// Takes bytes that arrive before the end of the wait. `begun` is the end of the bytes so far, if that may be the
    /// beginning of an answer.
    fn take_early(&mut self, begun: &mut Vec<u8>, bytes: &[u8]) {
        begun.extend_from_slice(bytes);
        let is_begun = |n: &usize| {
            let end = begun.len().checked_sub(*n).and_then(|at| begun.get(at..));
            end.is_some_and(|end| STARTS.iter().any(|start| start.starts_with(end)))
        };
        let n = (1..=MAX_BEGUN).rev().find(is_begun).unwrap_or_default();
        let rest = begun.split_off(begun.len() - n);
        let typed = self.without_answers(begun);
        self.typed_early.extend(typed);
        *begun = rest;
    }

    /// Returns the colors, if the terminal has reported text and background.
    pub(crate) fn colors(&self) -> Option<TerminalColors> {
        let [fg, bg, cursor] = self.found;
        let (fg, bg) = fg.zip(bg)?;
        Some(TerminalColors { fg, bg, cursor: cursor.unwrap_or(fg) })
    }

    /// Removes answers from typed bytes.
    pub(super) fn without_answers(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let (mut typed, mut rest) = (Vec::new(), all.as_slice());

        while let Some((&first, after)) = rest.split_first() {
            let kind = STARTS.iter().position(|start| rest.starts_with(start));
            let end = kind.and_then(|_| end_of(rest.get(..MAX_ANSWER).unwrap_or(rest)));
            match (kind, end) {
                (Some(kind), Some(end)) => {
                    let (answer, after) = rest.split_at(end);
                    match self.found.get_mut(kind) {
                        Some(found) => *found = parsed(answer).or(*found),
                        None if answer.ends_with(b"c") => self.is_complete = true,
                        // Not an answer to these queries.
                        None => typed.extend(answer),
                    }
                    rest = after;
                }
                (Some(_), None) if rest.len() < MAX_ANSWER => {
                    self.held = rest.to_vec();
                    break;
                }
                _ => {
                    typed.push(first);
                    rest = after;
                }
            }
        }
        typed
    }
}

/// Reads bytes from stdin. `None` at the time `end`, and after an error.
fn read_until_blocking(end: Instant) -> Option<Vec<u8>> {
    let stdin = io::stdin();
    let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok()?;
    let mut watched = [PollFd::new(&stdin, PollFlags::IN)];
    if !matches!(poll(&mut watched, Some(&left)), Ok(1..)) {
        return None;
    }
    let mut bytes = [0; 1024];
    let n = rustix::io::read(&stdin, &mut bytes).ok()?;
    bytes.get(..n).filter(|read| !read.is_empty()).map(<[u8]>::to_vec)
}

/// Returns the length of an answer with its end: BEL or ST, or the final byte of the last one.
fn end_of(answer: &[u8]) -> Option<usize> {
    if let Some(parameters) = answer.strip_prefix(LAST_START) {
        let is_final = |byte: &u8| !matches!(byte, b'0'..=b'9' | b';');
        return parameters.iter().position(is_final).map(|at| LAST_START.len() + at + 1);
    }
    let bel = answer.iter().position(|byte| *byte == 7).map(|at| at + 1);
    let st = answer.windows(2).position(|pair| pair == b"\x1b\\").map(|at| at + 2);
    bel.into_iter().chain(st).min()
}

/// Returns the color of an answer such as `\x1b]10;rgb:ffff/ffff/ffff\x07`.
fn parsed(answer: &[u8]) -> Option<RgbColor> {
    let text = str::from_utf8(answer).ok()?.trim_end_matches(['\x07', '\x1b', '\\']);
    let mut parts = text.split_once(";rgb:")?.1.split('/').map(part);
    let color = RgbColor { r: parts.next()??, g: parts.next()??, b: parts.next()?? };
    parts.next().is_none().then_some(color)
}

/// Converts one to four hexadecimal digits to 8 bits.
fn part(digits: &str) -> Option<u8> {
    let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let max = match digits.len() {
        1 => 0xf,
        2 => 0xff,
        3 => 0xfff,
        4 => 0xffff,
        _ => return None,
    };
    let number = u32::from_str_radix(digits, 16).ok().filter(|_| is_number)?;
    u8::try_from(number * 255 / max).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[u8] = b"a\x1b]12;rgb:1/0/f\x07b\x1b]10;rgb:ffff/8000/0000\x1b\\\x1b]11;rgb:00/10/fe\x07\x1b[?64;22c\x1b[Ac";

    #[test]
    fn an_answer_before_the_end_of_the_wait_may_be_split_anywhere() {
        for split in 0..=ALL.len() {
            let (mut query, mut begun) = (ColorQuery::default(), Vec::new());
            query.take_early(&mut begun, &ALL[..split]);
            query.take_early(&mut begun, &ALL[split..]);
            assert_eq!(
                (query.typed_early.as_slice(), begun.len()),
                (&b"ab\x1b[Ac"[..], 0),
                "{split}"
            );
            assert!(query.is_complete && query.colors().is_some(), "{split}");
        }
        let (mut query, mut begun) = (ColorQuery::default(), Vec::new());
        query.take_early(&mut begun, b"x\x1b");
        assert_eq!((query.typed_early.as_slice(), begun.as_slice()), (&b"x"[..], &b"\x1b"[..]));
        assert_eq!(query.without_answers(&begun), b"\x1b", "a key");
    }

    #[test]
    fn answers_are_read_and_removed_however_they_are_split() {
        // After the wait, the beginning of an answer is not held: it may be a key.
        let is_in_start = |split: usize| {
            let is_before = |start: &&[u8]| {
                (1..start.len()).any(|n| n <= split && ALL[split - n..].starts_with(start))
            };
            STARTS.iter().any(is_before)
        };
        for split in (0..ALL.len()).filter(|split| !is_in_start(*split)) {
            let mut query = ColorQuery::default();
            let mut typed = query.without_answers(&ALL[..split]);
            typed.extend(query.without_answers(&ALL[split..]));
            assert_eq!(typed, b"ab\x1b[Ac", "{split}");
            let fg = RgbColor { r: 255, g: 127, b: 0 };
            let bg = RgbColor { r: 0, g: 16, b: 254 };
            let cursor = RgbColor { r: 17, g: 0, b: 255 };
            assert_eq!(query.colors(), Some(TerminalColors { fg, bg, cursor }), "{split}");
            assert!(query.is_complete, "{split}");
        }
    }

    #[test]
    fn other_input_passes_and_nothing_is_held_without_end() {
        let mut query = ColorQuery::default();
        for typed in [
            &b"\x1b"[..],
            b"\x1b]",
            b"\x1b]1",
            b"\x1b]13;rgb:0/0/0\x07",
            b"text\x07\xff",
            b"\x1b[?1;2R",
            b"\x1b[?\x1b",
        ] {
            assert_eq!(query.without_answers(typed), typed);
        }
        let long = [b"\x1b]10;".as_slice(), &[b'x'; 2 * MAX_ANSWER]].concat();
        assert_eq!(query.without_answers(&long), long);
        for bad in ["", "rgb:", "rgb:0/0", "rgb:0/0/0/0", "rgb:+1/0/0", "rgb:00000/0/0", "red"] {
            let answer = format!("\x1b]10;{bad}\x07");
            assert_eq!(query.without_answers(answer.as_bytes()), b"", "{bad}");
        }
        assert_eq!(query.colors(), None);
    }
}
