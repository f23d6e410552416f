//! A row with its context. A group stays together on a page, and is shortened if it is larger than a page.
//! Called by `page`.

use super::row::{digits, row_bytes};
use crate::outcome::{Cut, Row, RowKind};

/// A row and its context.
#[derive(Debug)]
pub(super) struct Group {
    /// Context before the row, without the lines that are context after the previous row.
    before: Vec<Row>,
    pub(super) found: Row,
    /// Context after the row, up to the next row.
    after: Vec<Row>,
}

/// Splits the rows of a file into groups. `before` and `after` are the requested numbers of context lines.
pub(super) fn groups(rows: Vec<Row>, before: usize, after: usize) -> Vec<Group> {
    let far = |lines: usize| u64::try_from(lines).unwrap_or(u64::MAX);
    let mut groups: Vec<Group> = Vec::new();
    let mut waiting: Vec<Row> = Vec::new();
    for row in rows {
        if row.kind == RowKind::Match {
            waiting.retain(|context| row.line <= context.line.saturating_add(far(before)));
            let before = std::mem::take(&mut waiting);
            groups.push(Group { before, found: row, after: Vec::new() });
            continue;
        }

        match groups.last_mut() {
            Some(last) if row.line <= last.found.end_line.saturating_add(far(after)) => {
                last.after.push(row);
            }
            _ => waiting.push(row),
        }
    }
    groups
}

impl Group {
    /// Returns the size of all lines in bytes.
    pub(super) fn bytes(&self, path_len: usize) -> usize {
        sum(&self.before, path_len) + row_bytes(path_len, &self.found) + sum(&self.after, path_len)
    }

    /// Removes context that does not fit into `max_bytes`, and keeps the lines nearest to the row. Returns true
    /// if not even the row fits. The row stays in any case: its text is never longer than `max_bytes`.
    pub(super) fn shorten(&mut self, path_len: usize, max_bytes: usize) -> bool {
        let found = row_bytes(path_len, &self.found);
        let room = max_bytes.saturating_sub(found);
        // Each side gets the space that the other side does not need.
        let room_before = (room / 2).max(room.saturating_sub(sum(&self.after, path_len)));
        self.before.reverse();
        keep(&mut self.before, path_len, room_before);
        self.before.reverse();
        let room_after = room.saturating_sub(sum(&self.before, path_len));
        keep(&mut self.after, path_len, room_after);
        max_bytes < found
    }

    /// Appends the lines in order.
    pub(super) fn append_to(mut self, rows: &mut Vec<Row>) {
        rows.append(&mut self.before);
        rows.push(self.found);
        rows.append(&mut self.after);
    }
}

fn sum(rows: &[Row], path_len: usize) -> usize {
    rows.iter().map(|row| row_bytes(path_len, row)).sum()
}

/// Keeps the first rows that fit, and the start of the next row, marked as cut.
fn keep(rows: &mut Vec<Row>, path_len: usize, room: usize) {
    let (mut left, mut n) = (room, 0);
    for row in rows.iter_mut() {
        if left < row_bytes(path_len, row) {
            n += usize::from(cut(row, left.saturating_sub(path_len + digits(row.line) + 3)));
            break;
        }
        left -= row_bytes(path_len, row);
        n += 1;
    }
    rows.truncate(n);
}

/// Cuts the text of a row to `room` bytes, but not within a character. Returns false if nothing is left.
fn cut(row: &mut Row, room: usize) -> bool {
    let goes_on = |at: &usize| row.text.get(*at).is_some_and(|byte| byte & 0xC0 == 0x80);
    // A character has at most four bytes. Invalid UTF-8 may be cut anywhere.
    let end = (room.saturating_sub(3)..=room).rev().find(|at| !goes_on(at)).unwrap_or(room);
    let left_out = row.text.len().saturating_sub(end);
    row.text.truncate(end);

    let cut = row.cut.get_or_insert(Cut { before: 0, after: 0 });
    cut.after += left_out;
    end != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Spans;

    fn row(kind: RowKind, line: u64, text: &str) -> Row {
        Row {
            kind,
            line,
            end_line: line,
            column: 1,
            text: text.as_bytes().to_vec(),
            spans: Spans::new(),
            cut: None,
            after_gap: false,
        }
    }

    /// Builds a group from lines numbered from 1. `+` is a row, anything else is context.
    fn group(lines: &[&str], context: usize) -> Group {
        let kind =
            |text: &str| if text.starts_with('+') { RowKind::Match } else { RowKind::Context };
        let rows = (1..).zip(lines).map(|(line, text)| row(kind(text), line, text)).collect();
        groups(rows, context, context).remove(0)
    }

    fn shortened(lines: &[&str], max_bytes: usize) -> (Vec<String>, bool) {
        let mut group = group(lines, 9);
        let is_cut = group.shorten(1, max_bytes);
        let mut rows = Vec::new();
        group.append_to(&mut rows);
        let bytes: usize = rows.iter().map(|row| row_bytes(1, row)).sum();
        assert!(bytes <= max_bytes || rows.len() == 1, "{bytes} of {max_bytes}");
        let text = |row: Row| {
            let mark = row.cut.map_or(String::new(), |cut| format!("[{}]", cut.after));
            String::from_utf8(row.text).unwrap() + &mark
        };
        (rows.into_iter().map(text).collect(), is_cut)
    }

    #[test]
    fn context_that_has_no_room_is_left_out_far_from_the_row_first() {
        let lines = ["aaaa", "bbbb", "+row", "cccc", "dddd"];
        // Five bytes for `a:1:` and the newline, nine for each line.
        for (max_bytes, expected) in [
            (45, &["aaaa", "bbbb", "+row", "cccc", "dddd"][..]),
            (43, &["aaa[1]", "bbbb", "+row", "cccc", "ddd[1]"]),
            (28, &["bbbb", "+row", "cccc"]),
            (27, &["bbbb", "+row", "cccc"]),
            (25, &["bbb[1]", "+row", "ccc[1]"]),
            (9, &["+row"]),
        ] {
            let (rows, is_cut) = shortened(&lines, max_bytes);
            assert_eq!(
                (rows, is_cut),
                (expected.iter().map(|row| (*row).to_owned()).collect(), false)
            );
        }
        assert_eq!(shortened(&lines, 8), (vec!["+row".to_owned()], true));
    }

    #[test]
    fn one_side_has_the_room_that_the_other_one_does_not_need() {
        let (rows, _) = shortened(&["aaaa", "bbbb", "+row"], 27);
        assert_eq!(rows, ["aaaa", "bbbb", "+row"]);
        let (rows, _) = shortened(&["+row", "cccc", "dddd", "e"], 27);
        assert_eq!(rows, ["+row", "cccc", "dddd"]);
    }

    #[test]
    fn no_character_of_context_is_cut() {
        let (rows, _) = shortened(&["+row", "äöü"], 9 + 5 + 5);
        assert_eq!(rows, ["+row", "äö[2]"]);
        let (rows, _) = shortened(&["+row", "ä"], 9 + 5 + 1);
        assert_eq!(rows, ["+row"]);
    }
}
