//! Receives the matching lines of one file from the searcher. Called by `file`.

use super::file_outcome::{FileOutcome, Hits};
use super::options::{ScanOptions, Skip};
use super::pass::{Flags, Scan};
use super::row::{DisplayLine, row, row_bytes};
use super::skipping::Gaps;
use crate::crlf::CrlfMap;
use crate::line_matcher::LineMatcher;
use crate::outcome::{Row, RowKind, Spans};
use crate::request::OutputMode;
use crate::tree::Stop;
use crate::walk::EntryIndex;
use grep_matcher::Matcher as _;
use grep_searcher::{Searcher, Sink, SinkContext, SinkFinish, SinkMatch};
use std::borrow::Cow;
use std::io;
use std::ops::Range;

/// Matching lines between two checks of the deadline.
const CHECK_EVERY: u64 = 64;

/// Bytes after a match that a pattern across lines may inspect.
const LOOK_AHEAD_BYTES: usize = 128;

/// Receiver of the matching lines of one file.
pub(super) struct FileSink<'a> {
    pub(super) ask: &'a ScanOptions,
    pub(super) matcher: &'a LineMatcher,
    pub(super) stop: &'a Stop,
    pub(super) flags: &'a Flags,
    pub(super) scan: &'a Scan<'a>,
    pub(super) gaps: &'a Gaps,
    /// Bytes that were removed from the text that the searcher sees.
    pub(super) crlf: CrlfMap,
    pub(super) place: EntryIndex,
    pub(super) skip: Skip,
    /// Receives the parts of a file with many rows.
    pub(super) give: &'a mut dyn FnMut(FileOutcome),
    /// Whether rows are still collected.
    pub(super) collects: bool,
    /// Whether the collected rows exceed the space of any page.
    pub(super) overflows: bool,
    pub(super) hits: Hits,
    pub(super) n_bytes: usize,
    /// Number of matching lines, for the deadline checks.
    pub(super) n_seen: u64,
    pub(super) binary: bool,
}

impl FileSink<'_> {
    /// Returns the number of a line in the file.
    fn line(&self, in_searcher: Option<u64>, at: u64) -> u64 {
        in_searcher.unwrap_or_default() + self.gaps.lines_before(at)
    }

    /// Counts a row and returns true if it is skipped.
    fn is_skipped(&mut self, line: u64) -> bool {
        let is_skipped = match &mut self.skip {
            Skip::Nothing | Skip::Rows(0) => false,
            Skip::Rows(left) => {
                *left -= 1;
                true
            }
            Skip::Through(last) => line <= *last,
        };

        if is_skipped {
            self.hits.n_skipped += 1;
        } else {
            self.hits.n_rows += 1;
        }
        is_skipped
    }

    /// Whether to collect the row that was just counted.
    fn collects_next(&mut self) -> bool {
        self.collects &= !self.overflows;
        self.collects
    }

    fn push(&mut self, row: Row) {
        let is_match = row.kind == RowKind::Match;
        if is_match && self.hits.n_rows == 1 {
            // Context of skipped rows that is too far from this row is not counted. The page would remove it,
            // have space left, and not detect that more rows were not collected.
            let before = u64::try_from(self.ask.before).unwrap_or(u64::MAX);
            self.hits.rows.retain(|context| row.line <= context.line.saturating_add(before));
            self.n_bytes = self.hits.rows.iter().map(|row| self.bytes_of(row)).sum();
        }

        self.n_bytes += self.bytes_of(&row);
        self.hits.rows.push(row);

        // Before the first row there is only context, and its last lines suffice.
        if self.hits.n_rows == 0 {
            self.trim();
            return;
        }
        if self.ask.part_bytes < self.n_bytes + self.hits.rows.len() * size_of::<Row>() {
            self.n_bytes = 0;
            (self.give)(FileOutcome::Part(std::mem::take(&mut self.hits.rows)));
        }

        self.overflows = self.ask.max_bytes < self.n_bytes;
        // One row more than the page limit proves that more rows exist. Only matching rows count: after context
        // that does not fit, or a first row that does not fit, the sink still looks for the next row.
        let is_more = is_match && self.hits.n_rows != 1 && self.overflows;
        if is_more || self.is_full() {
            self.collects = false;
        }
    }

    /// Removes context before the first row that is too far away, or that no page has space for. Keeps the
    /// lines nearest to the row, and one line that does not fit, so that the page detects the cut.
    fn trim(&mut self) {
        let mut n = self.hits.rows.len().saturating_sub(self.ask.before);
        let mut bytes: usize = self.hits.rows.iter().skip(n).map(|row| self.bytes_of(row)).sum();
        for row in self.hits.rows.iter().skip(n) {
            let rest = bytes - self.bytes_of(row);
            if rest <= self.ask.max_row {
                break;
            }
            (n, bytes) = (n + 1, rest);
        }
        self.hits.rows.drain(..n);
        self.n_bytes = bytes;
    }

    fn bytes_of(&self, row: &Row) -> usize {
        row_bytes(self.scan.walked.path_len(self.place), row)
    }

    fn is_full(&self) -> bool {
        usize::try_from(self.hits.n_rows).is_ok_and(|n| self.ask.limit < n)
    }

    /// Whether to continue searching this file.
    fn goes_on(&self) -> bool {
        self.collects || self.ask.count_all || !(self.ask.with_rows || self.is_full())
    }

    fn shown(&self) -> DisplayLine {
        DisplayLine { max_line: self.ask.max_line, max_bytes: self.ask.max_row }
    }

    /// Returns the ranges of the matches, relative to the original text of the matching line.
    fn spans(&self, searcher: &Searcher, found: &SinkMatch<'_>) -> Spans {
        let mut spans = Spans::new();
        if !self.ask.invert {
            let at = offset(found.absolute_byte_offset());
            let start = self.crlf.original(at);
            self.each(searcher, found, |span| {
                let span = self.crlf.original_range(at + span.start..at + span.end);
                spans.push(span.start - start..span.end - start);
            });
        }
        spans
    }

    /// Returns the text of the file for a part of the text that the searcher sees.
    fn original<'t>(&self, part: &'t [u8], at: u64) -> Cow<'t, [u8]> {
        self.crlf.restored(part, offset(at))
    }

    /// Calls `give` for each match of a matching line.
    fn each(&self, searcher: &Searcher, found: &SinkMatch<'_>, mut give: impl FnMut(Range<usize>)) {
        let range = found.bytes_range_in_buffer();
        let buffer = found.buffer();
        let ends_line = found.bytes().ends_with(b"\n");
        let end = if searcher.multi_line_with_matcher(self.matcher) {
            buffer.len().min(range.end + LOOK_AHEAD_BYTES)
        } else {
            range.start + self.matcher.ends.without_end(found.bytes()).len()
        };

        let searched = buffer.get(..end).unwrap_or(buffer);
        let result = self.matcher.find_iter_at(searched, range.start, |hit| {
            // After a newline another line begins. Without a newline, an empty match may end the file: it makes
            // the line match, but is not counted, as in ripgrep.
            let may_end = !ends_line && self.ask.output == OutputMode::Lines;
            let is_inside = hit.start() < range.end + usize::from(may_end);
            if is_inside {
                give(hit.start() - range.start..hit.end() - range.start);
            }
            is_inside
        });

        // This cannot fail: the error type has no values.
        debug_assert!(result.is_ok());
    }

    fn count(&self, searcher: &Searcher, found: &SinkMatch<'_>) -> u64 {
        if self.ask.invert {
            return 1;
        }
        let mut n = 0;
        self.each(searcher, found, |_| n += 1);
        n.max(1)
    }

    fn take_line(&mut self, found: &SinkMatch<'_>, searcher: &Searcher) -> bool {
        let line = self.line(found.line_number(), found.absolute_byte_offset());
        self.hits.matches += 1;
        let is_skipped = self.is_skipped(line);
        if !is_skipped && self.collects_next() {
            let text = self.original(found.bytes(), found.absolute_byte_offset());
            let text = without_newline(&text);
            let mut spans = self.spans(searcher, found);
            // A match may begin in the line end, which is not shown.
            spans.retain(|span| span.start <= text.len());
            for span in &mut spans {
                span.end = span.end.min(text.len());
            }
            self.push(row(RowKind::Match, line, text, spans, self.shown()));
        }

        self.goes_on()
    }

    fn take_matches(&mut self, found: &SinkMatch<'_>, searcher: &Searcher) -> bool {
        let line = self.line(found.line_number(), found.absolute_byte_offset());
        let bytes = &self.original(found.bytes(), found.absolute_byte_offset());
        if self.ask.invert {
            // The row contains no match.
            return true;
        }

        let (mut at, mut here) = (0, line);
        for span in self.spans(searcher, found) {
            self.hits.matches += 1;
            let passed = bytes.get(at..span.start).unwrap_or_default();
            here += count_newlines(passed);
            at = span.start;

            if !self.is_skipped(here) && self.collects_next() {
                let text = bytes.get(span.clone()).unwrap_or_default();
                let begin = memchr::memrchr(b'\n', bytes.get(..span.start).unwrap_or_default());
                let whole = std::iter::once(0..text.len()).collect();
                let mut row = row(RowKind::Match, here, text, whole, self.shown());
                // A final newline belongs to the last line of the row.
                row.end_line -= u64::from(text.ends_with(b"\n"));
                let in_line = span.start - begin.map_or(0, |newline| newline + 1);
                row.column = u64::try_from(in_line).unwrap_or(0) + 1;
                self.push(row);
            }

            if !self.goes_on() {
                return false;
            }
        }
        true
    }
}

impl Sink for &mut FileSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.n_seen += 1;
        let is_time = self.n_seen.is_multiple_of(CHECK_EVERY) && self.stop.is_reached();
        if is_time || self.flags.has_ended() {
            return Ok(false);
        }

        let inner = without_newline(found.bytes());
        self.hits.lines += 1;
        if self.ask.multiline {
            self.hits.lines += count_newlines(inner);
        }

        Ok(match self.ask.output {
            OutputMode::Files | OutputMode::FilesWithout => {
                self.hits.matches += 1;
                false
            }
            OutputMode::CountLines if searcher.multi_line_with_matcher(self.matcher) => {
                self.hits.matches += self.count(searcher, found);
                true
            }
            OutputMode::CountLines => {
                self.hits.matches += 1;
                true
            }
            OutputMode::CountMatches => {
                self.hits.matches += self.count(searcher, found);
                true
            }
            OutputMode::Lines => self.take_line(found, searcher),
            OutputMode::OnlyMatching => self.take_matches(found, searcher),
        })
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        // Lines before the first match that is not skipped may be its context, even if they are the context of
        // a skipped match. The page removes lines that are too far away.
        if self.collects && !self.overflows {
            let line = self.line(context.line_number(), context.absolute_byte_offset());
            let text = self.original(context.bytes(), context.absolute_byte_offset());
            self.push(row(
                RowKind::Context,
                line,
                without_newline(&text),
                Spans::new(),
                self.shown(),
            ));
        }
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.binary = true;
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> io::Result<()> {
        // The searcher may find a NUL byte only after it delivered rows.
        self.binary |= end.binary_byte_offset().is_some();
        Ok(())
    }
}

fn count_newlines(bytes: &[u8]) -> u64 {
    u64::try_from(memchr::memchr_iter(b'\n', bytes).count()).unwrap_or(0)
}

fn offset(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

fn without_newline(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\n").unwrap_or(bytes)
}
