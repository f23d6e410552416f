//! The part of a screen that fits into a smaller window, drawn from the rows of the screen.

use crate::display::{self, plain};
use quackd_protocol::limits::{MAX_TERMINAL_COLS, MAX_TERMINAL_ROWS};
use quackd_protocol::terminal::{CellSize, ScreenCursor, ScreenLine, ScreenRows, ScreenRun};
use quackd_terminal::write_style;
use unicode_width::UnicodeWidthChar;

/// Maximum number of characters per column of a row. It bounds characters without width.
const CHARS_PER_COLUMN: usize = 8;

/// Variation selector that turns some preceding characters into an emoji of two columns.
const WIDENS: char = '\u{fe0f}';

/// The rows of a screen, with safe texts.
#[derive(Debug)]
pub(super) struct CroppedScreen {
    size: CellSize,
    cursor: ScreenCursor,
    rows: Vec<ScreenLine>,
}

impl CroppedScreen {
    /// Creates an empty screen.
    pub(super) fn new() -> Self {
        let size = CellSize { cols: 0, rows: 0 };
        Self { size, cursor: ScreenCursor::default(), rows: Vec::new() }
    }

    /// Takes the rows of an event: all, or those that have changed. Rows beyond the largest screen are ignored.
    pub(super) fn take(&mut self, screen: ScreenRows) {
        let ScreenRows { cols, rows, cursor, whole, lines, .. } = screen;
        self.size = CellSize { cols, rows };
        self.cursor = cursor;
        if whole {
            self.rows.clear();
        }
        self.rows.resize(rows.min(MAX_TERMINAL_ROWS).into(), ScreenLine::default());

        let cols = usize::from(cols.min(MAX_TERMINAL_COLS));
        for ScreenLine { row, runs } in lines {
            if let Some(kept) = self.rows.get_mut(usize::from(row)) {
                kept.runs = safe_runs(runs, cols);
            }
        }
    }

    /// Returns the sequences that draw the screen on a window with any content: from its first row, or from a later one if
    /// the row of the cursor would not be visible. The last line of the window is a note with the label of the session.
    pub(super) fn drawing(&self, window: CellSize, label: &str) -> Vec<u8> {
        let visible = window.rows.saturating_sub(1);
        let cursor = self.cursor;
        let top = cursor.row.saturating_add(1).saturating_sub(visible);

        let mut out = b"\x1b[?25l".to_vec();
        for line in 0..visible {
            begin_line(&mut out, line);
            if let Some(row) = self.rows.get(usize::from(top) + usize::from(line)) {
                draw_row(&mut out, row, window.cols.into());
            }
        }

        begin_line(&mut out, visible);
        let (screen, label) = (self.size, display::name(label));
        let note = format!(
            "{label}: screen is {}×{}, window {}×{}",
            screen.cols, screen.rows, window.cols, window.rows
        );
        let note = display::cut(&note, window.cols.into());
        out.extend_from_slice(format!("\x1b[7m{note}\x1b[m").as_bytes());

        let line = cursor.row.saturating_sub(top);
        if cursor.visible && line < visible && cursor.col < window.cols {
            move_to(&mut out, line, cursor.col);
            out.extend_from_slice(b"\x1b[?25h");
        }
        out
    }
}

/// Moves the cursor, whose position counts from 0.
fn move_to(out: &mut Vec<u8>, line: u16, col: u16) {
    let (line, col) = (u32::from(line) + 1, u32::from(col) + 1);
    out.extend_from_slice(format!("\x1b[{line};{col}H").as_bytes());
}

/// Moves to a line and erases it.
pub(super) fn begin_line(out: &mut Vec<u8>, line: u16) {
    move_to(out, line, 0);
    out.extend_from_slice(b"\x1b[m\x1b[K");
}

/// Draws the columns of a row that fit into the window.
fn draw_row(out: &mut Vec<u8>, row: &ScreenLine, mut columns: usize) {
    for ScreenRun { text, style } in &row.runs {
        write_style(style, out);
        for c in text.chars() {
            let Some(left) = columns.checked_sub(width(c)) else { return };
            columns = left;
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}

/// Returns the largest number of columns that a character adds to a row.
fn width(c: char) -> usize {
    if c == WIDENS { 1 } else { c.width().unwrap_or(0) }
}

/// Returns the runs of a row without unsafe characters and of bounded length.
fn safe_runs(runs: Vec<ScreenRun>, cols: usize) -> Vec<ScreenRun> {
    let mut left = cols.saturating_mul(CHARS_PER_COLUMN);
    let runs = runs.into_iter().take(cols).map(|run| {
        let text: String = plain(&run.text).chars().take(left).collect();
        left = left.saturating_sub(text.chars().count());
        ScreenRun { text, ..run }
    });
    runs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_terminal::{Color, RgbColor, Screen, Style, TerminalSize};

    fn run(text: &str) -> ScreenRun {
        ScreenRun { text: text.to_owned(), ..ScreenRun::default() }
    }

    fn screen(cols: u16, rows: u16, texts: &[&str]) -> ScreenRows {
        let lines = texts.iter().enumerate().map(|(row, text)| {
            let row = u16::try_from(row).unwrap();
            ScreenLine { row, runs: vec![run(text)] }
        });
        ScreenRows { cols, rows, whole: true, lines: lines.collect(), ..ScreenRows::default() }
    }

    fn cropped(rows: ScreenRows) -> CroppedScreen {
        let mut cropped = CroppedScreen::new();
        cropped.take(rows);
        cropped
    }

    /// A window of a terminal emulator after a drawing.
    fn window(cropped: &CroppedScreen, cols: u16, rows: u16) -> Screen {
        let mut window = Screen::new(TerminalSize::new(cols, rows), 0);
        // The drawing must erase this.
        let dirt = format!("\x1b[41m{}", "#".repeat(usize::from(cols) * usize::from(rows)));
        assert!(window.feed(dirt.as_bytes()).is_empty());
        let drawing = cropped.drawing(CellSize { cols, rows }, "web");
        assert!(window.feed(&drawing).is_empty());
        window
    }

    fn lines(window: &Screen) -> Vec<String> {
        window.text().lines().map(|line| line.trim_end().to_owned()).collect()
    }

    #[test]
    fn rows_are_cut_at_the_edge_and_the_last_line_is_a_note() {
        let texts = ["0123456789", "ab", "", "third", "hidden"];
        let cropped = cropped(screen(120, 40, &texts));
        let shown = window(&cropped, 6, 5);
        assert_eq!(lines(&shown), ["012345", "ab", "", "third", "web: …"]);
        let shown = window(&cropped, 50, 2);
        assert_eq!(lines(&shown), ["0123456789", "web: screen is 120×40, window 50×2"]);
        let note = &shown.rows()[1].runs[0];
        assert!(note.style.inverse && note.style.bg.is_none(), "{note:?}");
        assert_eq!(lines(&window(&cropped, 9, 1)), ["web: scr…"]);
    }

    #[test]
    fn a_wide_character_that_does_not_fit_is_left_out() {
        let cropped = cropped(screen(120, 40, &["漢字漢", "e\u{301}e\u{301}e\u{301}e\u{301}"]));
        assert_eq!(lines(&window(&cropped, 5, 3))[0], "漢字");
        let drawing = cropped.drawing(CellSize { cols: 3, rows: 3 }, "web");
        let drawing = String::from_utf8(drawing).unwrap();
        let second = "\x1b[2;1H\x1b[m\x1b[K\x1b[0me\u{301}e\u{301}e\u{301}\x1b[3;1H";
        assert!(drawing.contains(second), "{drawing:?}");
    }

    #[test]
    fn the_row_of_the_cursor_is_visible() {
        let mut rows = screen(80, 6, &["a", "b", "c", "d", "e", "f"]);
        let shown = |rows: &ScreenRows| {
            let window = window(&cropped(rows.clone()), 40, 4);
            let cursor = window.cursor();
            (lines(&window)[..3].concat(), cursor.visible, cursor.row, cursor.col)
        };
        for (row, col, expected) in [
            (0, 0, ("abc", true, 0, 0)),
            (2, 39, ("abc", true, 2, 39)),
            (3, 5, ("bcd", true, 2, 5)),
            (5, 0, ("def", true, 2, 0)),
        ] {
            rows.cursor = ScreenCursor { row, col, visible: true };
            let (text, visible, row, col) = shown(&rows);
            assert_eq!((text.as_str(), visible, row, col), expected);
        }

        rows.cursor = ScreenCursor { row: 0, col: 40, visible: true };
        assert!(!shown(&rows).1, "it is right of the window");
        rows.cursor = ScreenCursor { row: 0, col: 0, visible: false };
        assert!(!shown(&rows).1);
        rows.cursor = ScreenCursor { row: u16::MAX, col: u16::MAX, visible: true };
        assert!(!shown(&rows).1);
    }

    #[test]
    fn styles_are_those_of_the_runs() {
        let style = Style {
            fg: Some(Color::Palette(200)),
            bg: Some(Color::Rgb(RgbColor { r: 1, g: 2, b: 255 })),
            bold: true,
            italic: true,
            underline: true,
            inverse: true,
            ..Style::default()
        };
        let runs = vec![ScreenRun { style, ..run("styled") }, run("plain")];
        let mut rows = screen(80, 24, &[]);
        rows.lines = vec![ScreenLine { row: 0, runs: runs.clone() }];

        let shown = window(&cropped(rows), 40, 3).rows()[0].runs.clone();
        assert_eq!(shown, runs);
    }

    #[test]
    fn changed_rows_replace_those_before() {
        let mut cropped = cropped(screen(80, 24, &["one", "two", "three"]));
        let mut changed = screen(80, 24, &["1", "", "3"]);
        changed.whole = false;
        changed.lines.remove(1);
        changed.lines.push(ScreenLine { row: 24, runs: vec![run("beyond")] });
        cropped.take(changed);
        assert_eq!(lines(&window(&cropped, 40, 24))[..3], ["1", "two", "3"]);
        cropped.take(screen(80, 24, &["new"]));
        let shown = lines(&window(&cropped, 40, 24));
        assert_eq!((shown[0].as_str(), shown[1].as_str()), ("new", ""));
    }

    #[test]
    fn no_control_character_of_a_text_passes_and_the_length_is_bounded() {
        let hostile: String = (0..0xa0).chain(0x2028..0x2030).filter_map(char::from_u32).collect();
        let rows = screen(80, 24, &[&hostile, "\x1b]52;c;YQ==\x07", "\u{9b}2J"]);
        let drawing = cropped(rows).drawing(CellSize { cols: 1000, rows: 10 }, "a\x1b[2Jb\r\n");
        let drawing = String::from_utf8(drawing).unwrap();
        let own = drawing.replace("\x1b[?25l", "").replace("\x1b[K", "").replace("\x1b[7m", "");
        let styles = own.split("\x1b[").skip(1);
        let is_own = |rest: &str| {
            let end = rest.find(|c: char| c != ';' && !c.is_ascii_digit());
            end.is_some_and(|end| rest[end..].starts_with(['H', 'm']))
        };
        assert!(styles.clone().all(is_own), "{own:?}");
        let mut texts = styles.flat_map(str::chars);
        assert!(!texts.any(|c| c.is_control() || c == '\u{202e}'), "{own:?}");

        let marks = format!("e{}", "\u{301}".repeat(100_000));
        let mut rows = screen(80, 24, &[&marks]);
        rows.lines[0].runs.extend(vec![run("x"); 100_000]);
        let size = CellSize { cols: 80, rows: 2 };
        assert!(cropped(rows).drawing(size, "web").len() < 4096);
        let huge = ScreenRows { cols: u16::MAX, rows: u16::MAX, ..ScreenRows::default() };
        assert_eq!(cropped(huge).rows.len(), usize::from(MAX_TERMINAL_ROWS));
    }
}
