//! Passes rows on in order while the scan finds them, without pages. Used by `engine`.
//!
//! The receiver of the rows may block. Then all threads of the scan wait: a thread that holds more than
//! [`MAX_HELD_BYTES`] continues after it has passed its rows on.

use super::OutcomeReceiver;
use super::file_outcome::{FileOutcome, Hits};
use super::page::PageBuilder;
use crate::outcome::{FileHits, Row, RowKind};
use std::time::Instant;

/// Size of the rows that a thread holds before it passes them on, in bytes of memory. Up to 64 batches of twice this
/// size wait for an earlier one.
pub(crate) const MAX_HELD_BYTES: usize = 256 * 1024;

/// Receives the rows of a search in order, a file with many rows in several parts. Returns false to stop the search.
pub type RowSink<'a> = dyn FnMut(FileHits) -> bool + Send + 'a;

/// Passes rows on, up to the limit of the page.
pub(crate) struct RowStream<'a, 'r, 's> {
    /// Counts, and the limit of rows. Collects nothing.
    page: PageBuilder<'a>,
    sink: &'r mut RowSink<'s>,
    /// Number of the last row's file, and the row's last line.
    last: Option<(usize, u64)>,
    /// Last line of context after the last match.
    context_end: u64,
    has_ended: bool,
}

impl<'a, 'r, 's> RowStream<'a, 'r, 's> {
    pub(crate) fn new(page: PageBuilder<'a>, sink: &'r mut RowSink<'s>) -> Self {
        Self { page, sink, last: None, context_end: 0, has_ended: false }
    }

    /// Returns the counts.
    pub(crate) fn into_page(self) -> PageBuilder<'a> {
        self.page
    }

    fn take_rows(&mut self, file: usize, mut hits: Hits) {
        hits.rows.retain_mut(|row| self.keeps(file, row));
        if !hits.rows.is_empty() {
            self.give(file, hits);
        }
    }

    /// Counts a row and marks the gap before it. Returns false for rows after the limit.
    fn keeps(&mut self, file: usize, row: &mut Row) -> bool {
        let end = self.last.filter(|(last, _)| *last == file).map(|(_, line)| line);
        match row.kind {
            _ if self.page.truncated => return false,
            RowKind::Match if self.page.is_full() => {
                self.page.truncated = true;
                return false;
            }
            RowKind::Match => {
                self.page.shown += 1;
                let after = u64::try_from(self.page.ask.after).unwrap_or(u64::MAX);
                self.context_end = row.end_line.saturating_add(after);
            }
            // After the last match of the limit, only its own context follows.
            RowKind::Context
                if self.page.is_full() && (end.is_none() || self.context_end < row.line) =>
            {
                return false;
            }
            RowKind::Context => {}
        }

        row.after_gap = end.is_some_and(|end| end + 1 < row.line);
        self.last = Some((file, row.end_line));
        true
    }

    fn take_file(&mut self, file: usize, hits: Hits) {
        if self.page.is_full() {
            self.page.truncated = true;
            return;
        }
        self.page.shown += 1;
        self.give(file, hits);
    }

    fn give(&mut self, file: usize, hits: Hits) {
        let Hits { lines, matches, is_binary, rows, .. } = hits;
        let path = self.page.path(file);
        self.has_ended = !(self.sink)(FileHits { path, lines, matches, is_binary, rows });
    }
}

impl OutcomeReceiver for RowStream<'_, '_, '_> {
    fn take(&mut self, file: usize, outcome: FileOutcome) -> bool {
        let is_part = matches!(outcome, FileOutcome::Part(_));
        let hits = match outcome {
            FileOutcome::Part(rows) => Some(Box::new(Hits { rows, ..Hits::default() })),
            outcome => self.page.tally.count(outcome, self.page.ask),
        };

        match hits {
            Some(hits) if self.page.lists_files() => self.take_file(file, *hits),
            Some(hits) => self.take_rows(file, *hits),
            None => {}
        }

        let counts = self.page.ask.count_all && Instant::now() < self.page.count_until;
        let goes_on = !self.has_ended && (!self.page.truncated || is_part || counts);
        self.page.has_stopped |= !goes_on;
        goes_on
    }

    fn only_counts(&self) -> bool {
        self.page.only_counts()
    }
}
