//! Converts a matching line to a row: the positions of its matches and its visible part. Called by `file`.

use crate::outcome::{Cut, Row, RowKind, Spans};
use std::ops::Range;

/// Limits of the visible part of a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct DisplayLine {
    /// Maximum number of characters around the first match.
    pub(super) max_line: Option<usize>,
    /// Maximum number of bytes from the start: a page has no space for more.
    pub(super) max_bytes: usize,
}

/// Creates a row from a line without its newline.
pub(super) fn row(kind: RowKind, line: u64, text: &[u8], spans: Spans, shown: DisplayLine) -> Row {
    let inner = memchr::memchr_iter(b'\n', text).count();
    let end_line = line + u64::try_from(inner).unwrap_or(0);

    let first = spans.first().cloned().unwrap_or(0..0);
    let column = u64::try_from(first.start).unwrap_or(0) + 1;

    let mut window = shown.max_line.map_or(0..text.len(), |max| window(text, &first, max));
    window.end = window.end.min(window.start.saturating_add(shown.max_bytes));
    let kept = text.get(window.clone()).unwrap_or_default();
    let cut = Cut { before: window.start, after: text.len() - window.end };

    let inside = |span: Range<usize>| {
        let (start, end) = (span.start.max(window.start), span.end.min(window.end));
        (start <= end && span.start <= window.end && window.start <= span.end)
            .then(|| start - window.start..end - window.start)
    };

    Row {
        kind,
        line,
        end_line,
        column,
        text: kept.to_vec(),
        spans: spans.into_iter().filter_map(inside).collect(),
        cut: (cut.before != 0 || cut.after != 0).then_some(cut),
        after_gap: false,
    }
}

/// Returns a range of at most `max` characters around a match. A shorter match gets more context on both sides.
/// Invalid UTF-8 bytes count as characters, or belong to the previous character.
fn window(text: &[u8], first: &Range<usize>, max: usize) -> Range<usize> {
    let match_start = first.start.min(text.len());
    let matched = text.get(match_start..first.end.min(text.len())).unwrap_or_default();
    let n_matched = matched.iter().filter(|byte| is_start(**byte)).take(max).count();
    let around = max - n_matched;
    // Space that is not needed after the match goes to the text before it, and the other way round.
    let after_match = forward(text, match_start, n_matched);
    let n_after = chars_left(text, after_match, around);
    let max_before = (around / 2).max(around.saturating_sub(n_after));
    let (start, n_before) = backward(text, match_start, max_before);
    let end = forward(text, after_match, around - n_before);
    start..end
}

fn is_start(byte: u8) -> bool {
    byte & 0xC0 != 0x80
}

fn forward(text: &[u8], from: usize, n: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    let mut starts = rest.iter().enumerate().filter(|(at, byte)| *at == 0 || is_start(**byte));
    starts.nth(n).map_or(text.len(), |(at, _)| from + at)
}

fn chars_left(text: &[u8], from: usize, at_most: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    rest.iter().filter(|byte| is_start(**byte)).take(at_most).count()
}

fn backward(text: &[u8], from: usize, n: usize) -> (usize, usize) {
    let before = text.get(..from).unwrap_or_default();
    let starts = before.iter().enumerate().rev().filter(|(_, byte)| is_start(**byte));
    let (mut at, mut n_starts) = (from, 0);
    for (start, _) in starts.take(n) {
        at = start;
        n_starts += 1;
    }
    (at, n_starts)
}

/// Returns the size of `path:line:text` and a newline in bytes.
pub(super) fn row_bytes(path_len: usize, row: &Row) -> usize {
    path_len + digits(row.line) + row.text.len() + 3
}

pub(super) fn digits(number: u64) -> usize {
    usize::try_from(number.checked_ilog10().unwrap_or(0)).unwrap_or(0) + 1
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "one match is a list of one range")]
mod tests {
    use super::*;

    fn shown(
        text: &str,
        span: Range<usize>,
        max: usize,
    ) -> (String, Option<Cut>, Vec<Range<usize>>) {
        let limits = DisplayLine { max_line: Some(max), max_bytes: usize::MAX };
        let row = row(RowKind::Match, 1, text.as_bytes(), std::iter::once(span).collect(), limits);
        (String::from_utf8(row.text).unwrap(), row.cut, row.spans.to_vec())
    }

    #[test]
    fn a_long_line_is_shown_around_its_match() {
        let cut = |before, after| Some(Cut { before, after });
        assert_eq!(shown("abcdef", 2..3, 6), ("abcdef".into(), None, vec![2..3]));
        assert_eq!(shown("0123456789", 5..6, 5), ("34567".into(), cut(3, 2), vec![2..3]));
        assert_eq!(shown("0123456789", 0..1, 4), ("0123".into(), cut(0, 6), vec![0..1]));
        assert_eq!(shown("0123456789", 9..10, 4), ("6789".into(), cut(6, 0), vec![3..4]));
        assert_eq!(shown("0123456789", 2..9, 4), ("2345".into(), cut(2, 4), vec![0..4]));
    }

    #[test]
    fn characters_are_not_cut() {
        let text = "ääääXöööö";
        let (shown, cut, spans) = shown(text, 8..9, 3);
        assert_eq!((shown.as_str(), cut), ("äXö", Some(Cut { before: 6, after: 6 })));
        assert_eq!(spans, [2..3]);
    }

    #[test]
    fn a_window_ends_within_any_bytes() {
        let bytes = [0x80, 0xFF, b'a', 0xC3, 0x80, 0x80, 0x80];
        for start in 0..=bytes.len() {
            for end in start..=bytes.len() {
                for max in 1..9 {
                    let window = window(&bytes, &(start..end), max);
                    assert!(window.start <= window.end && window.end <= bytes.len());
                }
            }
        }
    }
}
