//! The page: what of the files' rows is shown, and where it ends. Files come in order. Used by `engine`.

use super::Receive;
use super::file::{Ask, Hits, Outcome};
use super::row::{digits, row_bytes};
use crate::outcome::{Cut, FileHits, MAX_WARNINGS, Row, RowKind, Skipped, Warning};
use crate::request::OutputMode;
use crate::walk::Walked;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Numbers of the files that were taken.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) n_taken: usize,
    pub(crate) n_searched: u64,
    pub(crate) n_matched: u64,
    pub(crate) skipped: Skipped,
    pub(crate) warnings: Vec<Warning>,
    /// Rows of the mode.
    pub(crate) n_rows: u64,
}

impl Tally {
    /// Counts a file and gives what was found in it.
    fn count(&mut self, outcome: Outcome, ask: &Ask) -> Option<Box<Hits>> {
        self.n_taken += 1;
        match &outcome {
            Outcome::Searched(_) => self.n_searched += 1,
            Outcome::Binary => self.skipped.binary += 1,
            Outcome::TooLong(_) => self.skipped.too_long += 1,
            Outcome::TooLarge => self.skipped.too_large += 1,
            Outcome::Unreadable(warning) => {
                self.skipped.unreadable += 1;
                if self.warnings.len() < MAX_WARNINGS {
                    self.warnings.push(warning.clone());
                }
            }
            Outcome::Gone => (),
        }
        let is_row = is_row(&outcome, ask.output);
        self.n_matched += u64::from(is_row);
        let hits = outcome.into_hits();
        self.n_rows += n_rows(is_row, hits.as_deref(), ask.output);
        match ask.output {
            OutputMode::FilesWithout => is_row.then(Box::default),
            _ => hits,
        }
    }
}

/// Whether a file has what is looked for.
fn is_row(outcome: &Outcome, output: OutputMode) -> bool {
    match outcome {
        Outcome::Searched(hits) => hits.is_some() != (output == OutputMode::FilesWithout),
        Outcome::TooLong(hits) => hits.is_some() && output != OutputMode::FilesWithout,
        Outcome::Binary | Outcome::TooLarge | Outcome::Unreadable(_) | Outcome::Gone => false,
    }
}

fn n_rows(is_row: bool, hits: Option<&Hits>, output: OutputMode) -> u64 {
    match output {
        OutputMode::Lines | OutputMode::OnlyMatching => hits.map_or(0, |hits| hits.n_rows),
        _ => u64::from(is_row),
    }
}

/// Looks for the file in which a page begins.
pub(crate) struct Seek<'a> {
    pub(crate) ask: &'a Ask,
    pub(crate) offset: u64,
    pub(crate) tally: Tally,
    /// The file, and how many of its rows come before the page.
    pub(crate) found: Option<(usize, u64)>,
}

impl Receive for Seek<'_> {
    fn take(&mut self, file: usize, outcome: Outcome) -> bool {
        let is_row = is_row(&outcome, self.ask.output);
        let hits = match &outcome {
            Outcome::Searched(hits) | Outcome::TooLong(hits) => hits.as_deref(),
            _ => None,
        };
        let left = self.offset.saturating_sub(self.tally.n_rows);
        if left < n_rows(is_row, hits, self.ask.output) {
            self.found = Some((file, left));
            return false;
        }
        let _found = self.tally.count(outcome, self.ask);
        true
    }

    fn only_counts(&self) -> bool {
        true
    }
}

/// Collects the rows of a page.
pub(crate) struct Page<'a> {
    pub(crate) walked: &'a Walked,
    pub(crate) ask: &'a Ask,
    /// When counting ends, once the page is full.
    pub(crate) count_until: Instant,
    /// What was counted before the page, and goes on being counted.
    pub(crate) tally: Tally,
    pub(crate) files: Vec<FileHits>,
    pub(crate) shown: u64,
    pub(crate) truncated: bool,
    /// The last row shown: its file, its line, and how many rows of the file come up to it.
    pub(crate) last: Option<(PathBuf, u64, u64)>,
    /// It asked for no more, so there may be more than was counted.
    pub(crate) has_stopped: bool,
    bytes: usize,
}

impl<'a> Page<'a> {
    pub(crate) fn new(
        walked: &'a Walked,
        ask: &'a Ask,
        tally: Tally,
        count_until: Instant,
    ) -> Self {
        Self {
            walked,
            ask,
            count_until,
            tally,
            files: Vec::new(),
            shown: 0,
            truncated: false,
            last: None,
            has_stopped: false,
            bytes: 0,
        }
    }

    fn path(&self, file: usize) -> Arc<Path> {
        let place = self.walked.places().get(file);
        Arc::from(place.map(|place| self.walked.path(*place)).unwrap_or_default())
    }

    fn is_full(&self) -> bool {
        usize::try_from(self.shown).is_ok_and(|n| self.ask.limit <= n)
    }

    fn fits(&self, bytes: usize) -> bool {
        self.bytes + bytes <= self.ask.max_bytes
    }

    fn lists_files(&self) -> bool {
        !matches!(self.ask.output, OutputMode::Lines | OutputMode::OnlyMatching)
    }

    fn take_file(&mut self, file: usize, hits: &Hits) {
        let path = self.path(file);
        let count = match self.ask.output {
            OutputMode::CountLines | OutputMode::CountMatches => 1 + digits(hits.matches),
            _ => 0,
        };
        let bytes = path.as_os_str().len() + count + 1;
        if self.is_full() || !(self.fits(bytes) || self.files.is_empty()) {
            self.truncated = true;
            return;
        }
        self.bytes += bytes;
        self.shown += 1;
        self.last = Some((path.to_path_buf(), 0, 0));
        self.files.push(FileHits {
            path,
            lines: hits.lines,
            matches: hits.matches,
            is_binary: hits.is_binary,
            rows: Vec::new(),
        });
    }

    fn take_rows(&mut self, file: usize, mut hits: Hits) {
        let Some(first) = hits.rows.iter().position(|row| row.kind == RowKind::Match) else {
            self.truncated |= hits.n_rows != 0;
            return;
        };
        if self.is_full() {
            self.truncated = true;
            return;
        }
        let path = self.path(file);
        let n_before = self.ask.before;
        let first_line = hits.rows.get(first).map_or(0, |row| row.line);
        let too_far = |row: &Row| row.line + (n_before as u64) < first_line;
        let rows = std::mem::take(&mut hits.rows);
        let rows = rows.into_iter().enumerate().filter(|(n, row)| first <= *n || !too_far(row));
        let mut taking = Taking {
            path_len: path.as_os_str().len(),
            kept: Vec::new(),
            waiting: Vec::new(),
            is_cut: false,
            n_shown: 0,
        };
        for (_, row) in rows {
            if !self.take_row(row, &mut taking) {
                break;
            }
        }
        let Taking { kept, is_cut, n_shown, .. } = taking;
        self.truncated |= is_cut || hits.is_cut || n_shown < hits.n_rows;
        let last = kept.iter().rfind(|row| row.kind == RowKind::Match).map(|row| row.end_line);
        if let Some(line) = last {
            self.last = Some((path.to_path_buf(), line, hits.n_skipped + n_shown));
            self.files.push(FileHits {
                path,
                lines: hits.lines,
                matches: hits.matches,
                is_binary: hits.is_binary,
                rows: mark_gaps(kept),
            });
        }
    }

    /// Takes one row of a file. False if no more are wanted.
    fn take_row(&mut self, mut row: Row, taking: &mut Taking) -> bool {
        let bytes = row_bytes(taking.path_len, &row);
        if row.kind == RowKind::Context {
            let last = taking.kept.iter().rfind(|row| row.kind == RowKind::Match);
            let after = self.ask.after as u64;
            if last.is_none_or(|last| last.end_line + after < row.line) {
                taking.waiting.push(row);
                return true;
            }
            if !self.fits(bytes) {
                taking.is_cut = true;
                return false;
            }
            self.bytes += bytes;
            taking.kept.push(row);
            return true;
        }
        if self.is_full() {
            return false;
        }
        let waiting: usize = taking.waiting.iter().map(|row| row_bytes(taking.path_len, row)).sum();
        if self.fits(bytes + waiting) {
            self.bytes += bytes + waiting;
            taking.kept.append(&mut taking.waiting);
        } else if self.shown == 0 {
            // A first row that does not fit is cut rather than left out: an empty result would say that
            // nothing matches.
            shorten(&mut row, self.ask.max_bytes);
            self.bytes = self.ask.max_bytes;
            taking.is_cut = true;
        } else {
            taking.is_cut = true;
            return false;
        }
        self.shown += 1;
        taking.n_shown += 1;
        taking.kept.push(row);
        !taking.is_cut
    }
}

/// The rows of one file on their way to the page.
struct Taking {
    path_len: usize,
    kept: Vec<Row>,
    /// Context before a match that is still to come.
    waiting: Vec<Row>,
    is_cut: bool,
    n_shown: u64,
}

fn shorten(row: &mut Row, max_bytes: usize) {
    let left_out = row.text.len().saturating_sub(max_bytes);
    if left_out == 0 {
        return;
    }
    row.text.truncate(max_bytes);
    let cut = row.cut.get_or_insert(Cut { before: 0, after: 0 });
    cut.after += left_out;
    row.spans.retain(|span| span.start <= max_bytes);
    for span in &mut row.spans {
        span.end = span.end.min(max_bytes);
    }
}

fn mark_gaps(mut rows: Vec<Row>) -> Vec<Row> {
    let mut end = None;
    for row in &mut rows {
        row.after_gap = end.is_some_and(|end: u64| end + 1 < row.line);
        end = Some(row.end_line);
    }
    rows
}

impl Receive for Page<'_> {
    fn take(&mut self, file: usize, outcome: Outcome) -> bool {
        let hits = self.tally.count(outcome, self.ask);
        if let Some(hits) = hits {
            if self.truncated || !self.ask.with_rows && !self.lists_files() {
                // Only its numbers are wanted.
            } else if self.lists_files() {
                self.take_file(file, &hits);
            } else {
                self.take_rows(file, *hits);
            }
        }
        let goes_on = !self.truncated || (self.ask.count_all && Instant::now() < self.count_until);
        self.has_stopped |= !goes_on;
        goes_on
    }

    fn only_counts(&self) -> bool {
        self.truncated || !self.ask.with_rows
    }
}
