//! One grid of cells: a `vt100` parser that gets clean bytes only.

use super::scrollback::Scrollback;
use crate::modes::Region;
use crate::sequence::write;
use crate::size::TerminalSize;
use std::fmt::{Debug, Formatter};
use std::num::NonZeroU16;
use unicode_width::UnicodeWidthStr as _;

/// Least number of columns inside of the grid. `vt100` has no place for a wide character in one column.
const MIN_COLS: u16 = 2;

/// Selects the form of an emoji for the character before it.
pub(super) const EMOJI_SELECTOR: char = '\u{fe0f}';

pub(super) struct Grid {
    vt: vt100::Parser<Scrollback>,
    /// Size that is shown.
    pub(super) size: TerminalSize,
}

impl Debug for Grid {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Grid").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Grid {
    pub(super) fn new(size: TerminalSize, scrollback_bytes: usize) -> Self {
        let scrollback = Scrollback::new(scrollback_bytes);
        let vt = vt100::Parser::new_with_callbacks(rows_of(size), cols_of(size), 0, scrollback);
        Self { vt, size }
    }

    /// Feeds clean bytes: whole sequences without strings.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.vt.process(bytes);
    }

    pub(super) fn resize(&mut self, size: TerminalSize) {
        if cols_of(size) == cols_of(self.size) && size.rows == self.size.rows {
            // Every resize resets the region, also one that the grid does not have.
            let same = self.carried(None);
            self.feed(&same);
        }
        // Otherwise a higher grid gets blank rows above its text, for rows that it no longer has.
        self.vt.screen_mut().clear_scrollback();
        self.vt.set_size(rows_of(size), cols_of(size));
        self.size = size;
    }

    pub(super) fn screen(&self) -> &vt100::Screen {
        self.vt.screen()
    }

    /// Row and column of the cursor, from 0. After a character in the last column, it is the number of
    /// columns.
    pub(super) fn cursor(&self) -> (u16, u16) {
        self.vt.screen().cursor_position()
    }

    /// Returns true if [`EMOJI_SELECTOR`] would make the character in the last column wider than the row.
    pub(super) fn lacks_place_for_selector(&self) -> bool {
        let (row, col) = self.cursor();
        let cols = cols_of(self.size).get();
        let cell = self.screen().cell(row, cols - 1).filter(|_| cols <= col);
        cell.is_some_and(|cell| {
            let selected = format!("{}{EMOJI_SELECTOR}", cell.contents());
            !cell.is_wide_continuation() && 1 < selected.width()
        })
    }

    pub(super) fn scrollback(&self) -> &Scrollback {
        self.vt.callbacks()
    }

    pub(super) fn scrollback_mut(&mut self) -> &mut Scrollback {
        self.vt.callbacks_mut()
    }

    /// Bytes that give another grid this style, `region` and this position of the cursor.
    pub(super) fn carried(&self, region: Option<Region>) -> Vec<u8> {
        let mut out = self.vt.screen().attributes_formatted().into_bytes();
        write_region(region, &mut out);
        let (row, col) = self.cursor();
        write(&mut out, "", &[row + 1, col.min(self.size.cols - 1) + 1], "H");
        out
    }
}

/// Appends the sequence that sets `region`, or the whole screen. It moves the cursor.
pub(super) fn write_region(region: Option<Region>, out: &mut Vec<u8>) {
    match region {
        Some(region) => write(out, "", &[region.top + 1, region.bottom + 1], "r"),
        None => out.extend_from_slice(b"\x1b[r"),
    }
}

fn rows_of(size: TerminalSize) -> NonZeroU16 {
    NonZeroU16::new(size.rows).unwrap_or(NonZeroU16::MIN)
}

fn cols_of(size: TerminalSize) -> NonZeroU16 {
    NonZeroU16::new(size.cols.max(MIN_COLS)).unwrap_or(NonZeroU16::MIN)
}
