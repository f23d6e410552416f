//! Bytes that reproduce a screen on a terminal in any state.

use super::grid::{Grid, write_region};
use super::rows::{Glyph, Style, glyphs, write_style};
use crate::modes::Modes;
use crate::sequence::write;

/// Hides the drawing, selects the main screen, and undoes everything that changes how text appears.
const START: &[u8] =
    b"\x1b[?2026h\x1b[?25l\x1b[?1049l\x1b[r\x1b(B\x1b)B\x0f\x1b[?7h\x1b[m\x1b[H\x1b[2J";

pub(super) fn redraw(
    main: &Grid,
    alternate: Option<&Grid>,
    modes: &Modes,
    scrollback: usize,
) -> Vec<u8> {
    let mut out = START.to_vec();
    write_scrollback(main, scrollback, &mut out);
    modes.main.write(&mut out);
    write_grid(main, &mut out);
    write_cursor(main, &mut out);

    let alternate = alternate.filter(|_| modes.is_alternate);
    if let Some(alternate) = alternate {
        // This also saves the cursor of the main screen, to which the program returns.
        out.extend_from_slice(b"\x1b[m\x1b[?1049h\x1b[H\x1b[2J");
        modes.alternate.write(&mut out);
        write_grid(alternate, &mut out);
    }

    let grid = alternate.unwrap_or(main);
    if modes.region.is_some() {
        write_region(modes.region, &mut out);
    }
    write_cursor(grid, &mut out);
    modes.charsets.write(&mut out);
    modes.write_all(&mut out);
    out.extend_from_slice(grid.screen().attributes_formatted().as_bytes());
    out
}

/// Writes the lines and moves them out of the screen.
fn write_scrollback(main: &Grid, max: usize, out: &mut Vec<u8>) {
    let lines = main.scrollback().newest(max);
    if lines.is_empty() {
        return;
    }
    out.extend_from_slice(&lines);
    out.extend_from_slice(&b"\n".repeat(usize::from(main.size.rows - 1)));
    out.extend_from_slice(b"\x1b[H\x1b[2J");
}

/// Writes the cells onto an empty screen.
fn write_grid(grid: &Grid, out: &mut Vec<u8>) {
    for row in 0..grid.size.rows {
        let (mut style, mut is_exact) = (Style::default(), false);
        let glyphs = glyphs(grid, row);

        for glyph in &glyphs {
            // Terminals disagree about the width of several characters in a cell.
            if !is_exact {
                write(out, "", &[row + 1, glyph.col + 1], "H");
            }
            if glyph.style != style {
                write_style(&glyph.style, out);
                style = glyph.style;
            }
            out.extend_from_slice(glyph.text.as_bytes());
            is_exact = glyph.text.chars().nth(1).is_none();
        }
        if style != Style::default() {
            out.extend_from_slice(b"\x1b[m");
        }
    }
}

/// Moves the cursor to its place. Behind the last column it gets by writing the last character again.
fn write_cursor(grid: &Grid, out: &mut Vec<u8>) {
    let (row, col) = grid.cursor();
    let cols = grid.size.cols;
    if col < cols {
        write(out, "", &[row + 1, col + 1], "H");
        return;
    }

    let glyphs = glyphs(grid, row);
    let last = glyphs
        .last()
        .filter(|it| it.col + 1 == cols || (it.col + 2 == cols && is_wide(grid, row, it.col)));
    let blank = Glyph { col: cols - 1, text: " ", style: Style::default() };
    let Glyph { col, text, style } = last.unwrap_or(&blank);
    write(out, "", &[row + 1, col + 1], "H");
    write_style(style, out);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\x1b[m");
}

fn is_wide(grid: &Grid, row: u16, col: u16) -> bool {
    grid.screen().cell(row, col).is_some_and(vt100::Cell::is_wide)
}
