//! Messages to the supervisor about a screen, each within its bounds. Called by [`super::forwarding`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quackd_protocol::limits::{MAX_REDRAW_BYTES, MAX_ROWS_BYTES, VIEWER_SCROLLBACK_BYTES};
use quackd_protocol::terminal::{CellSize, FromTerminal, ScreenLine, ScreenRows, ScreenRun};
use quackd_terminal::{Screen, TerminalSize};
use serde_json::value::{RawValue, to_raw_value};

/// Bytes of JSON that a report of rows needs in addition to its lines.
const ROWS_HEAD_BYTES: usize = 256;

/// Returns the JSON of bytes in base64.
fn encoded(bytes: &[u8]) -> Box<RawValue> {
    // Room for the quotation marks too, so that the text is not copied.
    let mut base64 = String::with_capacity(bytes.len().div_ceil(3) * 4 + 2);
    base64.push('"');
    STANDARD.encode_string(bytes, &mut base64);
    base64.push('"');
    // Base64 between quotation marks is always JSON.
    RawValue::from_string(base64).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Returns bytes of JSON in base64.
pub(super) fn decoded(base64: &RawValue) -> Option<Vec<u8>> {
    let text: String = serde_json::from_str(base64.get()).ok()?;
    STANDARD.decode(text).ok()
}

pub(super) fn output(bytes: &[u8]) -> FromTerminal {
    FromTerminal::Output { bytes: encoded(bytes) }
}

pub(super) fn cell_size(TerminalSize { cols, rows }: TerminalSize) -> CellSize {
    CellSize { cols, rows }
}

/// Drawings of a screen, for further viewers. Replace it after each change of the screen.
#[derive(Debug, Default)]
pub(super) struct Drawings {
    /// The last one in bytes, and whether it has lines above the screen.
    redraw: Option<(bool, Box<RawValue>)>,
    rows: Option<Box<RawValue>>,
}

impl Drawings {
    /// Returns the whole screen, after lines above it for a viewer that wants them.
    pub(super) fn redraw(
        &mut self,
        screen: &Screen,
        viewer: Option<u32>,
        has_scrollback: bool,
    ) -> FromTerminal {
        let kept = self.redraw.take().filter(|(kept, _)| *kept == has_scrollback);
        let bytes = match kept {
            Some((_, bytes)) => bytes,
            None => encoded(&redraw_bytes(screen, has_scrollback)),
        };
        self.redraw = Some((has_scrollback, bytes.clone()));
        FromTerminal::Redraw { viewer, bytes, size: cell_size(screen.size()) }
    }

    /// Returns all rows of a screen.
    pub(super) fn rows(&mut self, screen: &Screen, viewer: u32) -> FromTerminal {
        let rows = self.rows.get_or_insert_with(|| bounded_json(screen_rows(screen)));
        FromTerminal::Rows { viewer: Some(viewer), screen: rows.clone() }
    }
}

fn redraw_bytes(screen: &Screen, has_scrollback: bool) -> Vec<u8> {
    let scrollback = if has_scrollback { VIEWER_SCROLLBACK_BYTES } else { 0 };
    for scrollback in [scrollback, 0] {
        let bytes = screen.redraw(scrollback);
        if bytes.len() <= MAX_REDRAW_BYTES {
            return bytes;
        }
    }
    without_colors(&screen.text())
}

/// Returns the rows of a screen that is too large with colors. Only marks of characters can make it larger than that.
fn without_colors(text: &str) -> Vec<u8> {
    let mut drawn = "\x1b[0m\x1b[H\x1b[2J".to_owned();
    drawn.push_str(&text.replace('\n', "\r\n"));
    let end = drawn.floor_char_boundary(MAX_REDRAW_BYTES);
    drawn.truncate(end);
    drawn.into_bytes()
}

/// Returns all rows of a screen.
pub(super) fn screen_rows(screen: &Screen) -> ScreenRows {
    let size = screen.size();
    ScreenRows {
        cols: size.cols,
        rows: size.rows,
        cursor: screen.cursor(),
        alternate: screen.is_alternate(),
        whole: true,
        lines: screen.rows(),
    }
}

/// Returns the rows that differ from `last`, or all after a change of the size. `None`: nothing differs.
pub(super) fn changed(last: Option<&ScreenRows>, now: &ScreenRows) -> Option<ScreenRows> {
    let Some(last) = last.filter(|last| (last.cols, last.rows) == (now.cols, now.rows)) else {
        return Some(now.clone());
    };
    let pairs = last.lines.iter().zip(&now.lines);
    let lines: Vec<_> =
        pairs.filter(|(last, now)| last != now).map(|(_, now)| now.clone()).collect();
    let is_news = !lines.is_empty() || (last.cursor, last.alternate) != (now.cursor, now.alternate);
    is_news.then(|| ScreenRows { whole: false, lines, ..now.clone() })
}

/// Returns a report of rows for all viewers.
pub(super) fn rows(rows: ScreenRows) -> FromTerminal {
    FromTerminal::Rows { viewer: None, screen: bounded_json(rows) }
}

fn bounded_json(mut rows: ScreenRows) -> Box<RawValue> {
    let screen = json(&rows);
    if screen.get().len() <= MAX_ROWS_BYTES {
        return screen;
    }
    cut(&mut rows);
    json(&rows)
}

fn json(rows: &ScreenRows) -> Box<RawValue> {
    // Rows always have a JSON form.
    to_raw_value(rows).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Removes styles, then the last lines that do not fit.
fn cut(rows: &mut ScreenRows) {
    let mut room = MAX_ROWS_BYTES - ROWS_HEAD_BYTES;
    let mut lines = Vec::new();

    for ScreenLine { row, runs } in std::mem::take(&mut rows.lines) {
        let text: String = runs.into_iter().map(|run| run.text).collect();
        let line = ScreenLine { row, runs: vec![ScreenRun { text, ..ScreenRun::default() }] };
        // With the comma behind it.
        let length = to_raw_value(&line).map_or(usize::MAX, |json| json.get().len() + 1);
        let Some(left) = room.checked_sub(length) else { break };
        room = left;
        lines.push(line);
    }
    rows.lines = lines;
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_terminal::{Color, RgbColor, Style};

    fn bytes_of(message: &FromTerminal) -> Vec<u8> {
        match message {
            FromTerminal::Output { bytes } | FromTerminal::Redraw { bytes, .. } => {
                decoded(bytes).unwrap()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bytes_survive_and_only_changed_rows_are_reported() {
        assert_eq!(bytes_of(&output(b"a\xff\0")), b"a\xff\0");
        let mut screen = Screen::new(TerminalSize::new(10, 3), 0);
        let first = screen_rows(&screen);
        assert_eq!(changed(None, &first).map(|rows| rows.whole), Some(true));
        assert_eq!(changed(Some(&first), &first), None);
        screen.feed(b"one\r\n\x1b[31mtwo\x1b[38;2;1;2;3mx");
        let second = screen_rows(&screen);
        let news = changed(Some(&first), &second).unwrap();
        assert_eq!((news.whole, news.lines.len(), news.cursor.row), (false, 2, 1));
        assert_eq!(news.lines[1].row, 1);
        assert_eq!(news.lines[1].runs[0].style.fg, Some(Color::Palette(1)));
        let color = Color::Rgb(RgbColor { r: 1, g: 2, b: 3 });
        assert_eq!(news.lines[1].runs[1].style.fg, Some(color));
        screen.feed(b"\x1b[H");
        let moved = changed(Some(&second), &screen_rows(&screen)).unwrap();
        assert_eq!((moved.lines.len(), moved.cursor.row), (0, 0));
    }

    #[test]
    fn a_drawing_is_made_once_for_each_kind() {
        let mut screen = Screen::new(TerminalSize::new(10, 3), 0);
        let mut drawings = Drawings::default();
        let first = bytes_of(&drawings.redraw(&screen, Some(1), true));
        screen.feed(b"unnoticed");
        assert_eq!(bytes_of(&drawings.redraw(&screen, Some(2), true)), first);
        assert_ne!(bytes_of(&drawings.redraw(&screen, None, false)), first);
    }

    #[test]
    fn the_largest_screens_stay_within_their_bounds() {
        let long = format!("{}\n", "e\u{301}\u{301}\u{301}\u{301}".repeat(1000)).repeat(500);
        assert!(without_colors(&long).len() <= MAX_REDRAW_BYTES);
        let style = Style { bold: true, ..Style::default() };
        let run = ScreenRun { text: "\u{301}".repeat(9), style };
        let lines = (0..200).map(|row| ScreenLine { row, runs: vec![run.clone(); 500] });
        let report = rows(ScreenRows { lines: lines.collect(), ..ScreenRows::default() });
        let FromTerminal::Rows { screen, .. } = report else { panic!("{report:?}") };
        assert!(screen.get().len() <= MAX_ROWS_BYTES);
        let read: ScreenRows = serde_json::from_str(screen.get()).unwrap();
        assert!(!read.lines.is_empty() && read.lines.iter().all(|line| line.runs.len() == 1));
    }
}
