//! The filter between a program and the user's terminal: an allow-list. Used by the client of a terminal.
//!
//! Every sequence that passes is written again from its parsed parameters. The filter tracks what a program changed, so
//! that a client can undo it at any time.

mod options;
mod strings;

pub use options::{ClipboardRule, FilterOptions};

use crate::csi::{self, Csi, Drawing};
use crate::modes::{Charsets, Mode, Modes, Region, SOFT_RESET, switch};
use crate::parser::{End, Parser, Sink};
use crate::sequence::write;
use quackd_protocol::foreign_text::stripped_line;
use quackd_protocol::limits::MAX_TITLE_CHARS;
use strings::{Command, NO_LINK};

/// Buffer for strings, in bytes: base64 of the largest text for the clipboard. Other strings have a lower limit.
const MAX_STRING: usize = 88 * 1024;

/// Filter of a client for the output of one program.
///
/// Memory: 90 KiB for a string that is not complete, and the output of one call.
#[derive(Debug)]
pub struct Filter {
    parser: Parser<MAX_STRING>,
    state: State,
}

#[derive(Debug)]
struct State {
    options: FilterOptions,
    modes: Modes,
    out: Vec<u8>,
    /// Mode with which the program selected the alternate screen last.
    alternate_mode: u16,
    /// Whether the filter pushed flags of the keyboard onto the terminal's stack. It pushes once per screen, and then
    /// only changes these flags, so that a program cannot push out those of the user's shell.
    has_main_flags: bool,
    has_alternate_flags: bool,
    /// Whether a style or character set ever passed. The terminal may have saved it with the cursor, so a later end does
    /// not count.
    was_styled: bool,
    was_shifted: bool,
    is_titled: bool,
    is_linked: bool,
}

impl Filter {
    /// Makes the filter for a terminal in its usual state.
    #[must_use]
    pub fn new(options: FilterOptions) -> Self {
        let title_prefix = stripped_line(&options.title_prefix, MAX_TITLE_CHARS);

        let state = State {
            options: FilterOptions { title_prefix, ..options },
            modes: Modes::default(),
            out: Vec::new(),
            alternate_mode: 1049,
            has_main_flags: false,
            has_alternate_flags: false,
            was_styled: false,
            was_shifted: false,
            is_titled: false,
            is_linked: false,
        };
        Self { parser: Parser::new(), state }
    }

    /// Returns the bytes that may be written to the terminal. `bytes` may begin and end inside of a sequence.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.parser.feed(bytes, &mut self.state);
        std::mem::take(&mut self.state.out)
    }

    /// Returns true if the program uses the alternate screen.
    #[must_use]
    pub fn is_alternate(&self) -> bool {
        self.state.modes.is_alternate
    }

    /// Returns bytes that undo everything that passed and outlasts the program: modes, screen, scroll region, styles,
    /// links, flags of the keyboard, the title. Only what is changed now is in it.
    #[must_use]
    pub fn restore(&self) -> Vec<u8> {
        let mut out = self.state.undo();
        if self.state.is_titled {
            out.extend_from_slice(b"\x1b[23;2t");
        }
        out
    }
}

impl State {
    /// Returns bytes that undo all but the title.
    fn undo(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if self.is_linked {
            out.extend_from_slice(NO_LINK);
        }
        // Before the terminal leaves the alternate screen, which has its own flags.
        if self.modes.is_alternate {
            if self.has_alternate_flags {
                out.extend_from_slice(b"\x1b[<1u");
            }
            self.undo_region(&mut out);
            out.extend_from_slice(switch(self.alternate_mode, false).as_bytes());
        }
        if self.has_main_flags {
            out.extend_from_slice(b"\x1b[<1u");
        }

        self.undo_region(&mut out);
        self.modes.write_undone(&mut out);
        if self.was_styled {
            out.extend_from_slice(b"\x1b[m");
        }
        if self.was_shifted {
            Charsets::default().write(&mut out);
        }
        out
    }

    /// Undoes the region of the screen in use. Some terminals have one for each screen.
    fn undo_region(&self, out: &mut Vec<u8>) {
        if self.modes.region.is_some() {
            out.extend_from_slice(b"\x1b7\x1b[r\x1b8");
        }
    }

    /// Replaces a whole reset, which would also reset settings of the user.
    fn reset(&mut self) {
        let undone = self.undo();
        self.out.extend_from_slice(&undone);
        self.out.extend_from_slice(b"\x1b[1;1H\x1b[2J");
        self.modes = Modes::default();
        (self.has_main_flags, self.has_alternate_flags) = (false, false);
        self.is_linked = false;
    }

    fn switch(&mut self, mode: u16, is_on: bool) {
        let was_alternate = self.modes.is_alternate;

        match self.modes.switch(mode, is_on) {
            None => {}
            Some(Mode::Switch | Mode::Cursor) => {
                self.out.extend_from_slice(switch(mode, is_on).as_bytes());
            }
            Some(Mode::Alternate { .. }) => {
                if was_alternate && !is_on && std::mem::take(&mut self.has_alternate_flags) {
                    self.out.extend_from_slice(b"\x1b[<1u");
                }
                self.out.extend_from_slice(switch(mode, is_on).as_bytes());
                if is_on {
                    self.alternate_mode = mode;
                }
                if is_on && !was_alternate {
                    self.show_flags();
                }
            }
        }
    }

    /// Gives the terminal the flags of the keyboard that the program has now.
    fn show_flags(&mut self) {
        let flags = self.modes.flags();
        let has_flags = if self.modes.is_alternate {
            &mut self.has_alternate_flags
        } else {
            &mut self.has_main_flags
        };
        if std::mem::replace(has_flags, *has_flags || flags != 0) {
            write(&mut self.out, "=", &[u16::from(flags), 1], "u");
        } else if flags != 0 {
            write(&mut self.out, ">", &[u16::from(flags)], "u");
        }
    }

    fn set_region(&mut self, csi: &Csi<'_>) {
        let (top, bottom) = (csi.number(0).max(1), csi.number(1));
        if bottom != 0 && bottom <= top {
            return;
        }
        let is_set = (top, bottom) != (1, 0);
        self.modes.region = is_set.then_some(Region { top, bottom });
        match bottom {
            0 if is_set => write(&mut self.out, "", &[top], "r"),
            0 => self.out.extend_from_slice(b"\x1b[r"),
            bottom => write(&mut self.out, "", &[top, bottom], "r"),
        }
    }
}

impl Sink for State {
    fn text(&mut self, c: char) {
        self.out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }

    /// Bell, backspace, tabs, line ends and shifts pass. The others do nothing, except ENQ, which is a query.
    fn control(&mut self, byte: u8) {
        let is_shift = self.modes.charsets.shift(byte);
        self.was_shifted |= is_shift;
        if is_shift || (7..=13).contains(&byte) {
            self.out.push(byte);
        }
    }

    fn escape(&mut self, intermediate: Option<u8>, byte: u8) {
        match (intermediate, byte) {
            (None, b'7' | b'8' | b'D' | b'E' | b'M') => self.out.extend_from_slice(&[0x1b, byte]),
            (None, b'=' | b'>') => {
                self.modes.keypad = byte == b'=';
                self.out.extend_from_slice(&[0x1b, byte]);
            }
            (None, b'c') => self.reset(),
            (Some(set), byte) if self.modes.charsets.designate(intermediate, byte) => {
                self.was_shifted = true;
                self.out.extend_from_slice(&[0x1b, set, byte]);
            }
            _ => {}
        }
    }

    fn csi(&mut self, csi: &Csi<'_>) {
        match csi.name() {
            (Some(b'?'), None, b'h') => csi.numbers().for_each(|mode| self.switch(mode, true)),
            (Some(b'?'), None, b'l') => csi.numbers().for_each(|mode| self.switch(mode, false)),
            (None, None, b'r') => self.set_region(csi),
            (None, Some(b'!'), b'p') => {
                self.out.extend_from_slice(SOFT_RESET);
                self.modes.soft_reset();
            }
            _ if self.modes.shape_cursor(csi) => {
                write(&mut self.out, "", &[u16::from(self.modes.shape)], " q");
            }
            _ if self.modes.kitty().apply(csi) => self.show_flags(),
            _ => {
                if let Some(drawing) = csi::drawing(csi) {
                    if matches!(drawing, Drawing::Style) {
                        self.was_styled |= csi.params.iter().any(|group| group != [0]);
                    }
                    csi::write_drawing(csi, &drawing, &mut self.out);
                }
            }
        }
    }

    fn osc(&mut self, parts: &[&[u8]], _: End) {
        let Self { options, out, is_titled, is_linked, .. } = self;
        let Some(command) = strings::allowed(parts, options) else { return };

        match command {
            Command::Title(title) => {
                // The terminal keeps the user's title on its own stack.
                if !std::mem::replace(is_titled, true) {
                    out.extend_from_slice(b"\x1b[22;2t");
                }
                out.extend_from_slice(&title);
            }
            Command::Link(link) => {
                *is_linked = true;
                out.extend_from_slice(&link);
            }
            Command::NoLink if std::mem::take(is_linked) => out.extend_from_slice(NO_LINK),
            Command::NoLink => {}
            Command::Other(bytes) => out.extend_from_slice(&bytes),
        }
    }

    fn capabilities(&mut self, _: &[u8]) {}
}
