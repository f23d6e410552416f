//! The last rows of a terminal, which are erased before other text is printed: the unfinished line of the output, a
//! question, the prompt and the state. Used by [`super::screen`] and [`super::prompt`].

use crate::display::width;
use crate::output::DIM;
use rustix::termios::tcgetwinsize;
use std::io;
use std::os::fd::AsFd;
use unicode_width::UnicodeWidthChar;

/// Columns and rows of a terminal that does not report its size, and the fewest that are used.
const SIZE: (usize, usize) = (80, 24);
const MIN_SIZE: (usize, usize) = (20, 4);

/// Rows of the terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Footer {
    /// Each with styles and narrower than the terminal.
    pub(super) rows: Vec<String>,
    /// Row and column of the cursor. Without it, the cursor is after the last row.
    pub(super) cursor: Option<(usize, usize)>,
}

impl Footer {
    /// Creates a footer of one row.
    pub(super) fn line(row: &str) -> Self {
        Self { rows: vec![format!("{DIM}{row}{DIM:#}")], cursor: None }
    }

    /// Puts rows before the others.
    pub(super) fn prepend(&mut self, rows: Vec<String>) {
        if let Some((row, _)) = &mut self.cursor {
            *row += rows.len();
        }
        self.rows.splice(..0, rows);
    }

    /// Drops the first rows, so that at most `most` are left.
    pub(super) fn fit(&mut self, most: usize) {
        let too_many = self.rows.len().saturating_sub(most);
        self.rows.drain(..too_many);

        if let Some((row, _)) = &mut self.cursor {
            *row = row.saturating_sub(too_many);
        }
    }

    /// Returns the text that prints the rows and moves the cursor.
    pub(super) fn text(&self) -> String {
        let mut text = self.rows.join("\n");
        let Some((row, column)) = self.cursor else { return text };

        // The parameter 0 means 1 to a terminal.
        let below = self.rows.len().saturating_sub(row + 1);
        if below != 0 {
            text.push_str(&format!("\u{1b}[{below}A"));
        }

        text.push('\r');
        if column != 0 {
            text.push_str(&format!("\u{1b}[{column}C"));
        }
        text
    }

    /// Returns the text that erases the rows of this footer from a terminal of this width, which reflows what is wider.
    pub(super) fn erasing(&self, columns: usize) -> String {
        if self.rows.is_empty() {
            return String::new();
        }

        let cursor = self.cursor.map_or(self.rows.len() - 1, |(row, _)| row);
        let above: usize = self.rows.iter().take(cursor).map(|row| height(row, columns)).sum();
        let within = match self.cursor {
            Some((_, column)) => column / columns.max(1),
            None => self.rows.last().map_or(0, |row| height(row, columns) - 1),
        };

        match above + within {
            0 => "\r\u{1b}[J".to_owned(),
            up => format!("\u{1b}[{up}A\r\u{1b}[J"),
        }
    }
}

/// Returns the columns and rows of the terminal on stdout.
pub(crate) fn screen_size() -> (usize, usize) {
    let (columns, rows) = reported_size(io::stdout());
    (columns, rows.unwrap_or(SIZE.1).max(MIN_SIZE.1))
}

/// Returns the columns of a terminal, and its rows if it reports them.
pub(super) fn reported_size(terminal: impl AsFd) -> (usize, Option<usize>) {
    let size = tcgetwinsize(terminal).ok();
    // A terminal whose size was never set reports 0.
    let columns = size.map(|size| usize::from(size.ws_col)).filter(|n| *n != 0);
    let rows = size.map(|size| usize::from(size.ws_row)).filter(|n| *n != 0);
    (columns.unwrap_or(SIZE.0).max(MIN_SIZE.0), rows)
}

/// Number of rows that a row takes on a terminal of this width.
fn height(row: &str, columns: usize) -> usize {
    let row = anstream::adapter::strip_str(row).to_string();
    width(&row).div_ceil(columns.max(1)).max(1)
}

/// Breaks a text into rows narrower than `columns`. The first begins with `first`, the others with `next`, both without
/// styles. Returns the rows and the row and column of the character at byte `cursor`.
pub(super) fn wrapped(
    text: &str,
    cursor: usize,
    first: &str,
    next: &str,
    columns: usize,
) -> (Vec<String>, (usize, usize)) {
    // A row has room for at least one wide character.
    let columns = columns.max(width(next) + 2);
    let mut rows = vec![first.to_owned()];
    let mut used = width(first);
    let mut at_cursor = None;

    for (at, c) in text.char_indices() {
        // A tab would move the cursor to a column that this function does not know.
        let visible = if c == '\t' { ' ' } else { c };
        let columns_of_c = visible.width().unwrap_or(0);
        if c != '\n' && columns <= used + columns_of_c {
            rows.push(next.to_owned());
            used = width(next);
        }

        // After the break: the cursor at a character of the next row is in that row.
        if at == cursor {
            at_cursor = Some((rows.len() - 1, used));
        }

        if c == '\n' {
            rows.push(next.to_owned());
            used = width(next);
        } else if let Some(row) = rows.last_mut() {
            row.push(visible);
            used += columns_of_c;
        }
    }

    let end = (rows.len() - 1, used);
    (rows, at_cursor.unwrap_or(end))
}

/// Keeps at most `most` rows, with the one of the cursor among them.
pub(super) fn scrolled(
    mut rows: Vec<String>,
    cursor: (usize, usize),
    most: usize,
) -> (Vec<String>, (usize, usize)) {
    let most = most.max(1);
    let begin = (cursor.0 + 1).saturating_sub(most);
    rows.drain(..begin);
    rows.truncate(most);
    (rows, (cursor.0 - begin, cursor.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_at_the_width_and_the_cursor_is_found() {
        let wrap = |text: &str, cursor: usize| wrapped(text, cursor, "> ", "  ", 8);
        assert_eq!(wrap("", 0), (vec!["> ".to_owned()], (0, 2)));
        assert_eq!(wrap("abcdef", 6).0, ["> abcde", "  f"]);
        assert_eq!((wrap("abcdef", 5).1, wrap("abcdef", 6).1), ((1, 2), (1, 3)));
        assert_eq!(wrap("a\nb", 1), (vec!["> a".to_owned(), "  b".to_owned()], (0, 3)));
        assert_eq!(wrap("漢字かな", 6), (vec!["> 漢字".to_owned(), "  かな".to_owned()], (1, 2)));
        assert_eq!(wrapped("abc", 3, "> ", "  ", 0).0, ["> a", "  b", "  c"]);
        let rows = |n: usize| (0..n).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(
            scrolled(rows(9), (8, 1), 3),
            (vec!["6".into(), "7".into(), "8".into()], (2, 1))
        );
        assert_eq!(
            scrolled(rows(9), (1, 0), 3),
            (vec!["0".into(), "1".into(), "2".into()], (1, 0))
        );
    }

    #[test]
    fn a_footer_is_erased_from_its_first_row_also_on_a_narrower_terminal() {
        let mut footer =
            Footer { rows: vec!["> abc".into(), "state".into()], cursor: Some((0, 5)) };
        assert_eq!(footer.text(), "> abc\nstate\u{1b}[1A\r\u{1b}[5C");
        assert_eq!(footer.erasing(80), "\r\u{1b}[J");
        footer.prepend(vec!["x".repeat(20)]);
        assert_eq!(footer.erasing(80), "\u{1b}[1A\r\u{1b}[J");
        assert_eq!(footer.erasing(10), "\u{1b}[2A\r\u{1b}[J");
        assert_eq!(footer.erasing(4), "\u{1b}[6A\r\u{1b}[J");
        assert_eq!(Footer::default().erasing(80), "");
    }
}
