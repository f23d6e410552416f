//! Cells of a grid as rows of text with styles.

use super::grid::Grid;
pub use quackd_protocol::terminal::{
    RgbColor, ScreenColor as Color, ScreenCursor as Cursor, ScreenLine as Row, ScreenRun as Run,
    ScreenStyle as Style,
};

/// Appends the sequence that sets this style only.
pub fn write_style(style: &Style, out: &mut Vec<u8>) {
    let mut numbers = vec![0];
    let flags = [
        (1, style.bold),
        (2, style.dim),
        (3, style.italic),
        (4, style.underline),
        (7, style.inverse),
    ];
    numbers.extend(flags.iter().filter(|(_, is_on)| *is_on).map(|(number, _)| *number));

    for (kind, color) in [(38, style.fg), (48, style.bg)] {
        match color {
            // Many terminals show bold text of these colors brighter, but only in the short form.
            Some(Color::Palette(index @ 0..=7)) => numbers.push(kind - 8 + u16::from(index)),
            Some(Color::Palette(index @ 8..=15)) => numbers.push(kind + 44 + u16::from(index)),
            Some(Color::Palette(index)) => numbers.extend([kind, 5, u16::from(index)]),
            Some(Color::Rgb(RgbColor { r, g, b })) => {
                numbers.extend([kind, 2, u16::from(r), u16::from(g), u16::from(b)]);
            }
            None => {}
        }
    }
    crate::sequence::write(out, "", &numbers, "m");
}

fn style_of(cell: &vt100::Cell) -> Style {
    let bg = color(cell.bgcolor());
    // A terminal keeps only the background of an erased cell.
    if !cell.has_contents() {
        return Style { bg, ..Style::default() };
    }

    Style {
        fg: color(cell.fgcolor()),
        bg,
        bold: cell.bold(),
        dim: cell.dim(),
        italic: cell.italic(),
        underline: cell.underline(),
        inverse: cell.inverse(),
    }
}

fn color(color: vt100::Color) -> Option<Color> {
    match color {
        vt100::Color::Default => None,
        vt100::Color::Idx(index) => Some(Color::Palette(index)),
        vt100::Color::Rgb(r, g, b) => Some(Color::Rgb(RgbColor { r, g, b })),
    }
}

/// A character with its marks, or a blank.
pub(super) struct Glyph<'a> {
    pub(super) col: u16,
    pub(super) text: &'a str,
    pub(super) style: Style,
}

/// Returns the glyphs of one row up to its last one that is not blank. A wide one has two columns.
pub(super) fn glyphs(grid: &Grid, row: u16) -> Vec<Glyph<'_>> {
    let cols = grid.size.cols;
    let (mut glyphs, mut n_shown, mut col) = (Vec::new(), 0, 0);

    while let Some(cell) = grid.screen().cell(row, col).filter(|_| col < cols) {
        let style = style_of(cell);
        let is_wide = cell.is_wide();
        // A grid of one column has two inside. A wide character there does not fit on the screen.
        let is_cut = is_wide && cols <= col + 1;
        let text = if cell.has_contents() && !is_cut { cell.contents() } else { " " };

        glyphs.push(Glyph { col, text, style });
        if text != " " || style != Style::default() {
            n_shown = glyphs.len();
        }
        col += if is_wide { 2 } else { 1 };
    }

    glyphs.truncate(n_shown);
    glyphs
}

pub(super) fn rows(grid: &Grid) -> Vec<Row> {
    let mut rows = Vec::with_capacity(usize::from(grid.size.rows));
    for row in 0..grid.size.rows {
        let mut runs: Vec<Run> = Vec::new();
        for glyph in glyphs(grid, row) {
            match runs.last_mut().filter(|run| run.style == glyph.style) {
                Some(run) => run.text.push_str(glyph.text),
                None => runs.push(Run { text: glyph.text.to_owned(), style: glyph.style }),
            }
        }
        rows.push(Row { row, runs });
    }
    rows
}

pub(super) fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let line: String = row.runs.iter().map(|run| run.text.as_str()).collect();
        text.push_str(line.trim_end_matches(' '));
        text.push('\n');
    }
    text.truncate(text.trim_end_matches('\n').len());
    text
}
