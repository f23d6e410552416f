//! The screen of a program's terminal, kept by the worker that runs the program. Its input is hostile.
//!
//! Two grids of `vt100`, one per screen, get only clean sequences that they have. Everything that they lack is here:
//! modes, the kinds of keyboard, character sets, the title, answers to queries, and the lines above the screen.

mod answers;
mod grid;
mod redraw;
mod rows;
mod scrollback;

pub use answers::MAX_ANSWER_BYTES;
pub use rows::{Color, Cursor, RgbColor, Row, Run, Style, write_style};

use crate::csi::{self, Csi, Drawing};
use crate::modes::{Mode, Modes, Region};
use crate::parser::{End, Parser, Sink};
use crate::sequence::write;
use crate::sgr;
use crate::size::TerminalSize;
use answers::Answers;
use grid::{EMOJI_SELECTOR, Grid};
use quackd_protocol::foreign_text::{is_web_address, stripped_line};
use quackd_protocol::limits::MAX_TITLE_CHARS;
use quackd_protocol::terminal::TerminalColors;
use unicode_width::UnicodeWidthChar as _;

/// Buffer for strings, in bytes. A string of that size or more is dropped.
const MAX_STRING: usize = 8 * 1024 + 1;

/// Clean bytes that are collected for a grid.
const BATCH: usize = 16 * 1024;

/// Most bytes that a thread with other tasks feeds at a time, because each can scroll a screen of 1,000 columns.
pub const FEED_BYTES: usize = 4 * 1024;

/// Cells that the sequences in [`FEED_BYTES`] may erase or move. A program on a screen of usual size does not reach it.
/// Further such sequences in these bytes have no effect. Newlines and text always have one, so no line is lost.
const MAX_WORK: usize = 4 * 1024 * 1024;

/// Work of a character that is repeated, in cells.
const REPEAT_WORK: usize = 16;

/// Characters of line drawing, from `` ` `` to `~`.
const LINES: &str = "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·";

/// The state of one terminal's screen.
///
/// The time of a call grows with its number of bytes only. A thread with other tasks passes at most [`FEED_BYTES`]. Memory:
/// 32 bytes per cell of two screens, and the lines above the screen.
#[derive(Debug)]
pub struct Screen {
    parser: Parser<MAX_STRING>,
    state: State,
}

#[derive(Debug)]
struct State {
    size: TerminalSize,
    main: Grid,
    /// Exists after its first use.
    alternate: Option<Grid>,
    modes: Modes,
    title: Option<String>,
    /// Address that the program has asked to open last, until it is taken.
    address: Option<String>,
    answers: Answers,
    /// Clean bytes for the grid in use.
    batch: Vec<u8>,
    /// Cells that the sequences in the next bytes may still erase or move.
    work: usize,
}

impl Screen {
    /// Makes an empty screen that keeps at most `scrollback_bytes` of the lines above it.
    #[must_use]
    pub fn new(size: TerminalSize, scrollback_bytes: usize) -> Self {
        let state = State {
            size,
            main: Grid::new(size, scrollback_bytes),
            alternate: None,
            modes: Modes::default(),
            title: None,
            address: None,
            answers: Answers::new(),
            batch: Vec::new(),
            work: MAX_WORK,
        };
        Self { parser: Parser::new(), state }
    }

    /// Feeds output of the program. Returns the answers to its queries: at most [`MAX_ANSWER_BYTES`]; further answers of
    /// the call are dropped.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        for piece in bytes.chunks(FEED_BYTES) {
            self.state.work = MAX_WORK;
            self.parser.feed(piece, &mut self.state);
        }
        self.state.flush();
        self.state.answers.take()
    }

    /// Sets the colors in answers to queries.
    pub fn set_colors(&mut self, colors: TerminalColors) {
        self.state.answers.colors = colors;
    }

    /// Changes the size. Rows that no longer fit move above the screen.
    pub fn resize(&mut self, size: TerminalSize) {
        let state = &mut self.state;
        if size != state.size {
            (state.size, state.modes.region) = (size, None);
            state.main.resize(size);
            if let Some(alternate) = &mut state.alternate {
                alternate.resize(size);
            }
        }
    }

    /// Returns the size.
    #[must_use]
    pub fn size(&self) -> TerminalSize {
        self.state.size
    }

    /// Returns the title that the program set: one line of at most [`MAX_TITLE_CHARS`] safe characters.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.state.title.as_deref()
    }

    /// Takes the address that the program has asked to open last, with `OSC 8732 ; open ; ADDRESS`: one of the web
    /// ([`is_web_address`]).
    pub fn take_address(&mut self) -> Option<String> {
        self.state.address.take()
    }

    /// Returns true if the alternate screen is in use.
    #[must_use]
    pub fn is_alternate(&self) -> bool {
        self.state.modes.is_alternate
    }

    /// Returns true if the program requires marks around pasted text.
    #[must_use]
    pub fn wants_bracketed_paste(&self) -> bool {
        self.state.modes.is_on(2004)
    }

    /// Returns true if cursor keys send their application codes.
    #[must_use]
    pub fn application_cursor(&self) -> bool {
        self.state.modes.is_on(1)
    }

    /// Returns the position of the cursor.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        let (row, col) = self.state.grid().cursor();
        let col = col.min(self.state.size.cols - 1);
        Cursor { row, col, visible: self.state.modes.is_on(25) }
    }

    /// Returns the rows as runs of text with a style, without trailing blanks. No text has a control or escape
    /// character.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        rows::rows(self.state.grid())
    }

    /// Returns the text of the rows without trailing blanks, joined by newlines, without trailing empty rows.
    #[must_use]
    pub fn text(&self) -> String {
        rows::text(&self.rows())
    }

    /// Returns the text of the last `lines` lines above the screen, each with a newline.
    #[must_use]
    pub fn scrollback_text(&self, lines: usize) -> String {
        self.state.main.scrollback().text(lines)
    }

    /// Returns bytes that reproduce the screen on a terminal of this size in any state, with both screens, the cursor
    /// and all modes, but without the title. They begin with at most `scrollback` bytes of the lines above the screen.
    /// A cell has at most 80 bytes; with the style of the cell before it, only those of its text.
    #[must_use]
    pub fn redraw(&self, scrollback: usize) -> Vec<u8> {
        let State { main, alternate, modes, .. } = &self.state;
        redraw::redraw(main, alternate.as_ref(), modes, scrollback)
    }
}

impl State {
    fn grid(&self) -> &Grid {
        let alternate = self.alternate.as_ref().filter(|_| self.modes.is_alternate);
        alternate.unwrap_or(&self.main)
    }

    fn grid_mut(&mut self) -> &mut Grid {
        let alternate = self.alternate.as_mut().filter(|_| self.modes.is_alternate);
        alternate.unwrap_or(&mut self.main)
    }

    /// Passes the collected bytes to the grid.
    fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.grid_mut().feed(&batch);
        self.batch = batch;
        self.batch.clear();
    }

    fn push(&mut self, bytes: &[u8]) {
        self.batch.extend_from_slice(bytes);
        if BATCH <= self.batch.len() {
            self.flush();
        }
    }

    /// Returns the column after the collected bytes. It is the number of columns after a character in the last one.
    fn column(&mut self) -> u16 {
        self.flush();
        self.grid().cursor().1
    }

    /// Returns false if no work is left for `cells`.
    fn affords(&mut self, cells: usize) -> bool {
        let left = self.work.checked_sub(cells);
        self.work = left.unwrap_or(self.work);
        left.is_some()
    }

    fn cells(&self) -> usize {
        usize::from(self.size.rows) * usize::from(self.size.cols)
    }

    /// Moves the cursor out of the place behind the last column, from which `vt100` would count.
    fn leave_margin(&mut self) {
        let cols = self.size.cols;
        if cols <= self.column() {
            write(&mut self.batch, "", &[cols], "G");
        }
    }

    /// Applies the whole reset of a terminal.
    fn reset(&mut self) {
        self.flush();
        (self.modes, self.title) = (Modes::default(), None);
        // Another screen may be made later.
        if self.affords(2 * self.cells()) {
            self.main.feed(b"\x1bc");
            self.alternate = None;
        }
    }

    /// Applies a private mode.
    fn switch(&mut self, mode: u16, is_on: bool) {
        self.flush();
        let was_alternate = self.modes.is_alternate;
        match self.modes.switch(mode, is_on) {
            Some(Mode::Alternate { saves }) => self.change_screen(was_alternate, saves),
            Some(Mode::Cursor) => self.push(if is_on { b"\x1b7" } else { b"\x1b8" }),
            Some(Mode::Switch) | None => {}
        }
    }

    /// Continues on the screen that the modes have now. Style, region and cursor stay.
    fn change_screen(&mut self, was_alternate: bool, saves: bool) {
        let is_alternate = self.modes.is_alternate;
        if is_alternate != was_alternate {
            let clears = saves && is_alternate && self.affords(self.cells());
            let alternate = self.alternate.get_or_insert_with(|| Grid::new(self.size, 0));

            if saves && is_alternate {
                self.main.feed(b"\x1b7");
            }
            if clears {
                alternate.feed(b"\x1b[m\x1b[2J");
            }

            let (from, to) = if is_alternate {
                (&mut self.main, alternate)
            } else {
                (alternate, &mut self.main)
            };
            to.feed(&from.carried(self.modes.region));
        }

        if saves && !is_alternate {
            self.main.feed(b"\x1b8");
        }
    }

    fn set_region(&mut self, csi: &Csi<'_>) {
        let rows = self.size.rows;
        let top = csi.number(0).max(1);
        let bottom = Some(csi.number(1)).filter(|it| *it != 0).unwrap_or(rows).min(rows);
        if bottom <= top {
            return;
        }

        let is_set = (top, bottom) != (1, rows);
        self.modes.region = is_set.then(|| Region { top: top - 1, bottom: bottom - 1 });
        let mut region = Vec::new();
        write(&mut region, "", &[top, bottom], "r");
        self.push(&region);
    }

    /// Returns the number of cells that a sequence erases or moves, at most.
    fn work_of(&mut self, last: char, count: u16) -> usize {
        let (rows, cols) = (usize::from(self.size.rows), usize::from(self.size.cols));
        let number = usize::from(count);
        // A scroll also moves the handles of the rows.
        let scroll = rows + cols;
        match last {
            'J' if count == 2 => rows * cols,
            'J' => {
                self.flush();
                let row = usize::from(self.grid().cursor().0);
                let n_rows = if count == 0 { rows.saturating_sub(row) } else { row + 1 };
                n_rows * cols
            }
            'L' | 'M' | 'S' | 'T' => number.min(rows) * scroll,
            '@' | 'K' | 'P' | 'X' => cols,
            // A character may have two columns.
            'b' => number * REPEAT_WORK + 2 * number / cols * scroll,
            _ => 0,
        }
    }

    /// Applies a sequence that draws, as `vt100` has it.
    fn draw(&mut self, csi: &Csi<'_>, drawing: &Drawing) {
        let cols = usize::from(self.size.cols);
        match drawing {
            Drawing::Style => sgr::write_kept(csi.params, &mut self.batch),
            // `vt100` has no sequence for tabulator steps.
            Drawing::Tabs { count, is_forward: true } => {
                self.push(&b"\t".repeat(usize::from(*count).min(cols.div_ceil(8))));
            }
            Drawing::Tabs { count, is_forward: false } => {
                let column = self.column().min(self.size.cols - 1);
                let stop = column.div_ceil(8).saturating_sub(*count) * 8;
                write(&mut self.batch, "", &[stop + 1], "G");
            }
            Drawing::Other { last, numbers: [count, _], .. } => {
                if *last == 'D' {
                    self.leave_margin();
                }
                let work = self.work_of(*last, *count);
                if self.affords(work) {
                    csi::write_drawing(csi, drawing, &mut self.batch);
                }
            }
            Drawing::Save | Drawing::Restore => csi::write_drawing(csi, drawing, &mut self.batch),
        }
    }
}

/// Returns the line drawing character of a letter.
fn line_drawing(c: char) -> Option<char> {
    let at = u8::try_from(c).ok()?.checked_sub(b'`')?;
    LINES.chars().nth(usize::from(at))
}

impl Sink for State {
    fn text(&mut self, c: char) {
        let line = if self.modes.charsets.draws_lines() { line_drawing(c) } else { None };
        // `vt100` has no replacement character, which has a column on every terminal.
        let shown = if c == char::REPLACEMENT_CHARACTER { '?' } else { c };
        let c = line.unwrap_or(shown);

        // Joiners join no cells. The selector makes some characters wide, for which the last column has no place.
        if matches!(c, '\u{200c}' | '\u{200d}') {
            return;
        }
        if c == EMOJI_SELECTOR {
            self.flush();
            if self.grid().lacks_place_for_selector() {
                return;
            }
        }
        if !self.modes.is_on(7) {
            let width = u16::try_from(c.width().unwrap_or(0)).unwrap_or(0);
            let last = self.size.cols.saturating_sub(width);
            if width != 0 && last < self.column() {
                write(&mut self.batch, "", &[last + 1], "G");
            }
        }

        self.push(c.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn control(&mut self, byte: u8) {
        match byte {
            b'\t'..=b'\r' => self.push(&[byte]),
            8 => {
                self.leave_margin();
                self.push(b"\x08");
            }
            byte => {
                self.modes.charsets.shift(byte);
            }
        }
    }

    fn escape(&mut self, intermediate: Option<u8>, byte: u8) {
        match (intermediate, byte) {
            (None, b'7' | b'8' | b'M') => self.push(&[0x1b, byte]),
            (None, b'D') => self.push(b"\n"),
            (None, b'E') => self.push(b"\r\n"),
            (None, b'=' | b'>') => self.modes.keypad = byte == b'=',
            (None, b'c') => self.reset(),
            _ => {
                self.modes.charsets.designate(intermediate, byte);
            }
        }
    }

    fn csi(&mut self, csi: &Csi<'_>) {
        match csi.name() {
            (Some(b'?'), None, b'h') => csi.numbers().for_each(|mode| self.switch(mode, true)),
            (Some(b'?'), None, b'l') => csi.numbers().for_each(|mode| self.switch(mode, false)),
            (None, None, b'r') => self.set_region(csi),
            (None, Some(b'!'), b'p') => {
                self.push(crate::modes::SOFT_RESET);
                self.modes.soft_reset();
            }
            (None, None, b'J') if csi.number(0) == 3 => {
                self.flush();
                self.main.scrollback_mut().clear();
            }
            _ if self.modes.shape_cursor(csi) || self.modes.kitty().apply(csi) => {}
            _ => match csi::drawing(csi) {
                Some(drawing) => self.draw(csi, &drawing),
                None => {
                    self.flush();
                    let (row, col) = self.grid().cursor();
                    let at = (row, col.min(self.size.cols - 1));
                    self.answers.sequence(csi, at, &self.modes);
                }
            },
        }
    }

    fn osc(&mut self, parts: &[&[u8]], end: End) {
        match parts {
            [b"0" | b"2", title @ ..] => {
                let title = title.join(&b';');
                let title = stripped_line(&String::from_utf8_lossy(&title), MAX_TITLE_CHARS);
                self.title = Some(title).filter(|it| !it.trim().is_empty());
            }
            [b"8732", b"open", address @ ..] => {
                let address = String::from_utf8(address.join(&b';')).ok();
                if let Some(address) = address.filter(|it| is_web_address(it)) {
                    self.address = Some(address);
                }
            }
            parts => self.answers.command(parts, end),
        }
    }

    fn capabilities(&mut self, names: &[u8]) {
        self.answers.capabilities(names);
    }
}
