//! Builds the page from the rows of the files, which arrive in order. Used by `engine`.

use super::OutcomeReceiver;
use super::file_outcome::{FileOutcome, Hits};
use super::group::groups;
use super::options::ScanOptions;
use super::row::digits;
use crate::outcome::{FileHits, MAX_WARNINGS, Row, Skipped, Warning};
use crate::request::OutputMode;
use crate::walk::WalkResult;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Counts of the received files.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) n_taken: usize,
    pub(crate) n_searched: u64,
    pub(crate) n_matched: u64,
    pub(crate) skipped: Skipped,
    pub(crate) warnings: Vec<Warning>,
    /// The first files that were not searched to the end, and the number of all of them.
    pub(crate) unfinished: (Vec<Warning>, u64),
    /// Number of rows.
    pub(crate) n_rows: u64,
}

impl Tally {
    /// Counts a file and returns its hits.
    pub(super) fn count(&mut self, outcome: FileOutcome, ask: &ScanOptions) -> Option<Box<Hits>> {
        self.n_taken += 1;
        match &outcome {
            // The file is counted with its last part.
            FileOutcome::Part(_) => (),
            FileOutcome::Searched(_) => self.n_searched += 1,
            FileOutcome::Binary => self.skipped.binary += 1,
            FileOutcome::TooLong(_, warning) => {
                self.skipped.too_long += 1;
                self.leave_unfinished(warning);
            }
            FileOutcome::TooLarge(warning) => {
                self.skipped.too_large += 1;
                self.leave_unfinished(warning);
            }
            FileOutcome::Unreadable(warning) => {
                self.skipped.unreadable += 1;
                if self.warnings.len() < MAX_WARNINGS {
                    self.warnings.push(warning.clone());
                }
            }
            FileOutcome::Gone => (),
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

impl Tally {
    fn leave_unfinished(&mut self, warning: &Warning) {
        let (first, n) = &mut self.unfinished;
        *n += 1;
        if first.len() < MAX_WARNINGS {
            first.push(warning.clone());
        }
    }
}

/// Whether a file is a row in the file modes.
fn is_row(outcome: &FileOutcome, output: OutputMode) -> bool {
    match outcome {
        FileOutcome::Searched(hits) => hits.is_some() != (output == OutputMode::FilesWithout),
        FileOutcome::TooLong(hits, _) => hits.is_some() && output != OutputMode::FilesWithout,
        FileOutcome::Part(_)
        | FileOutcome::Binary
        | FileOutcome::TooLarge(_)
        | FileOutcome::Unreadable(_)
        | FileOutcome::Gone => false,
    }
}

fn n_rows(is_row: bool, hits: Option<&Hits>, output: OutputMode) -> u64 {
    match output {
        OutputMode::Lines | OutputMode::OnlyMatching => hits.map_or(0, |hits| hits.n_rows),
        _ => u64::from(is_row),
    }
}

/// Finds the file in which a page begins.
pub(crate) struct PageStart<'a> {
    pub(crate) ask: &'a ScanOptions,
    pub(crate) offset: u64,
    pub(crate) tally: Tally,
    /// Number of the file, and the number of its rows before the page.
    pub(crate) found: Option<(usize, u64)>,
}

impl OutcomeReceiver for PageStart<'_> {
    fn take(&mut self, file: usize, outcome: FileOutcome) -> bool {
        let is_row = is_row(&outcome, self.ask.output);
        let hits = match &outcome {
            FileOutcome::Searched(hits) | FileOutcome::TooLong(hits, _) => hits.as_deref(),
            _ => None,
        };

        let left = self.offset.saturating_sub(self.tally.n_rows);
        if left < n_rows(is_row, hits, self.ask.output) {
            self.found = Some((file, left));
            return false;
        }
        let _hits = self.tally.count(outcome, self.ask);
        true
    }

    fn only_counts(&self) -> bool {
        true
    }
}

/// Collects rows up to the page limits.
pub(crate) struct PageBuilder<'a> {
    pub(crate) walked: &'a WalkResult,
    pub(crate) ask: &'a ScanOptions,
    /// Time at which counting stops once the page is full.
    pub(crate) count_until: Instant,
    /// Counts of the rows before the page, continued while the page is filled.
    pub(crate) tally: Tally,
    pub(crate) files: Vec<FileHits>,
    pub(crate) shown: u64,
    pub(crate) truncated: bool,
    /// Last row of the page: its file, its line, and the number of the file's rows up to it.
    pub(crate) last: Option<(PathBuf, u64, u64)>,
    /// The scan was stopped early, so the counts may be too low.
    pub(crate) has_stopped: bool,
    bytes: usize,
}

impl<'a> PageBuilder<'a> {
    pub(crate) fn new(
        walked: &'a WalkResult,
        ask: &'a ScanOptions,
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

    pub(super) fn path(&self, file: usize) -> Arc<Path> {
        let place = self.walked.places().get(file);
        Arc::from(place.map(|place| self.walked.path(*place)).unwrap_or_default())
    }

    pub(super) fn is_full(&self) -> bool {
        usize::try_from(self.shown).is_ok_and(|n| self.ask.limit <= n)
    }

    fn fits(&self, bytes: usize) -> bool {
        self.bytes + bytes <= self.ask.max_bytes
    }

    pub(super) fn lists_files(&self) -> bool {
        !matches!(self.ask.output, OutputMode::Lines | OutputMode::OnlyMatching)
    }

    fn take_file(&mut self, file: usize, hits: &Hits) {
        let path = self.path(file);
        let count = match self.ask.output {
            OutputMode::CountLines | OutputMode::CountMatches => 1 + digits(hits.matches),
            _ => 0,
        };

        let bytes = path.as_os_str().len() + count + 1;
        // The first file is always included, as the first row is.
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

    /// Takes the rows of one file, each with all its context. The page ends before the first row that does not
    /// fit with its context.
    fn take_rows(&mut self, file: usize, mut hits: Hits) {
        let rows = std::mem::take(&mut hits.rows);
        let groups = groups(rows, self.ask.before, self.ask.after);
        if groups.is_empty() || self.is_full() {
            self.truncated |= hits.n_rows != 0;
            return;
        }

        let path = self.path(file);
        let path_len = path.as_os_str().len();
        let (mut kept, mut n_shown, mut last) = (Vec::new(), 0, None);
        for mut group in groups {
            if self.is_full() {
                break;
            }
            let bytes = group.bytes(path_len);
            if self.fits(bytes) {
                self.bytes += bytes;
            } else if self.shown == 0 {
                // The first row is always included. An empty page would mean that nothing matches, and the next
                // page would start at the same row.
                self.truncated |= group.shorten(path_len, self.ask.max_bytes);
                self.bytes = self.ask.max_bytes;
            } else {
                break;
            }

            self.shown += 1;
            n_shown += 1;
            last = Some(group.found.end_line);
            group.append_to(&mut kept);
        }

        self.truncated |= n_shown < hits.n_rows;
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
}

fn mark_gaps(mut rows: Vec<Row>) -> Vec<Row> {
    let mut end = None;
    for row in &mut rows {
        row.after_gap = end.is_some_and(|end: u64| end + 1 < row.line);
        end = Some(row.end_line);
    }
    rows
}

impl OutcomeReceiver for PageBuilder<'_> {
    fn take(&mut self, file: usize, outcome: FileOutcome) -> bool {
        let hits = self.tally.count(outcome, self.ask);
        if let Some(hits) = hits {
            if self.truncated || !self.ask.with_rows && !self.lists_files() {
                // Only the counts are needed.
            } else if self.lists_files() {
                self.take_file(file, &hits);
            } else {
                self.take_rows(file, *hits);
            }
        }

        // A full page goes on only to count, and only for a part of the time.
        let goes_on = !self.truncated || (self.ask.count_all && Instant::now() < self.count_until);
        self.has_stopped |= !goes_on;
        goes_on
    }

    fn only_counts(&self) -> bool {
        self.truncated || !self.ask.with_rows
    }
}
