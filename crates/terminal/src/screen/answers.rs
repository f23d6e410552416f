//! Answers to the queries of a program. The worker gives them, so that each query gets one answer, with any number of
//! viewers.

use crate::colors::{DEFAULT_COLORS, palette};
use crate::csi::Csi;
use crate::modes::Modes;
use crate::parser::End;
use quackd_protocol::terminal::{RgbColor, TerminalColors};

/// Maximum size of the answers to one call of [`super::Screen::feed`], in bytes.
pub const MAX_ANSWER_BYTES: usize = 4096;

/// Capabilities with a value that is not that of every xterm: name and value.
const CAPABILITIES: [(&str, &str); 4] =
    [("TN", "xterm-256color"), ("Co", "256"), ("colors", "256"), ("RGB", "8")];

/// Answers that the caller has not taken yet.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) colors: TerminalColors,
    bytes: Vec<u8>,
}

impl Answers {
    pub(super) fn new() -> Self {
        Self { colors: DEFAULT_COLORS, bytes: Vec::new() }
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Adds an answer, unless it is one too many.
    fn push(&mut self, answer: &str) {
        if self.bytes.len() + answer.len() <= MAX_ANSWER_BYTES {
            self.bytes.extend_from_slice(answer.as_bytes());
        }
    }

    /// Answers a control sequence, if it is a query. `cursor` is row and column, from 0.
    pub(super) fn sequence(&mut self, csi: &Csi<'_>, cursor: (u16, u16), modes: &Modes) {
        let (row, col) = (cursor.0 + 1, cursor.1 + 1);
        let first = csi.number(0);
        match csi.name() {
            // A VT220 with colors.
            (None, None, b'c') if first == 0 => self.push("\x1b[?62;22c"),
            (Some(b'>'), None, b'c') if first == 0 => self.push("\x1b[>1;277;0c"),
            (None, None, b'n') if first == 5 => self.push("\x1b[0n"),
            (None, None, b'n') if first == 6 => self.push(&format!("\x1b[{row};{col}R")),
            (Some(b'?'), None, b'n') if first == 6 => self.push(&format!("\x1b[?{row};{col}R")),
            (Some(b'?'), Some(b'$'), b'p') => {
                self.push(&format!("\x1b[?{first};{}$y", modes.report(first)));
            }
            (None, Some(b'$'), b'p') => self.push(&format!("\x1b[{first};0$y")),
            (Some(b'>'), None, b'q') if first == 0 => self.push("\x1bP>|quackd\x1b\\"),
            (Some(b'?'), None, b'u') => {
                let flags = modes.flags();
                self.push(&format!("\x1b[?{flags}u"));
            }
            _ => {}
        }
    }

    /// Answers a query for colors. `parts` is the whole command.
    pub(super) fn command(&mut self, parts: &[&[u8]], end: End) {
        let Some((kind, queries)) = parts.split_first() else { return };
        if *kind == b"4" {
            for query in queries.chunks_exact(2) {
                if let [index, b"?"] = query
                    && let Some(index) = number(index)
                {
                    self.color(&format!("4;{index}"), palette(index), end);
                }
            }
            return;
        }

        // Further colors of one command are those of the following numbers.
        let Some(kind) = number(kind).filter(|kind| (10..=12).contains(kind)) else { return };
        for (kind, query) in (kind..=12).zip(queries) {
            let color = match kind {
                10 => self.colors.fg,
                11 => self.colors.bg,
                _ => self.colors.cursor,
            };
            if *query == b"?" {
                self.color(&kind.to_string(), color, end);
            }
        }
    }

    fn color(&mut self, kind: &str, color: RgbColor, end: End) {
        let RgbColor { r, g, b } = color;
        let end = match end {
            End::Bel => "\x07",
            End::St => "\x1b\\",
        };
        self.push(&format!("\x1b]{kind};rgb:{r:02x}{r:02x}/{g:02x}{g:02x}/{b:02x}{b:02x}{end}"));
    }

    /// Answers a request for capabilities. `names` are hexadecimal, with semicolons.
    pub(super) fn capabilities(&mut self, names: &[u8]) {
        for name in names.split(|byte| *byte == b';') {
            let known = CAPABILITIES
                .iter()
                .find(|(known, _)| hex(known).as_bytes().eq_ignore_ascii_case(name));
            match known {
                Some((known, value)) => {
                    self.push(&format!("\x1bP1+r{}={}\x1b\\", hex(known), hex(value)));
                }
                None => self.push("\x1bP0+r\x1b\\"),
            }
        }
    }
}

fn number(digits: &[u8]) -> Option<u8> {
    str::from_utf8(digits).ok()?.parse().ok()
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02X}")).collect()
}
