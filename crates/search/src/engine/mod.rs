//! Runs one search: interprets the pattern, walks the files, scans them and builds the page.

mod explain;

use crate::cursor::{Cursor, hash_of_search};
use crate::error::SearchError;
use crate::note::Note;
use crate::outcome::{MAX_WARNINGS, SearchOutcome, Total};
use crate::pattern::{self, Interpretation};
use crate::request::{
    Binary, Dialect, Encoding, MAX_CONTEXT, MAX_ROWS, Multiline, OutputMode, Search,
};
use crate::scan::{
    MAX_HELD_BYTES, PageBuilder, PageStart, RowSink, RowStream, Scan, ScanOptions, Skip, Tally,
};
use crate::scope::Sort;
use crate::tree::Tree;
use crate::walk::{self, WalkResult};
use explain::Similar;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Instant;

/// Searches the files of a request. With a sink, its rows go there instead of into the outcome.
pub(crate) fn search(
    request: &Search,
    tree: &dyn Tree,
    mut sink: Option<&mut RowSink<'_>>,
) -> Result<SearchOutcome, SearchError> {
    let began = Instant::now();
    let readings = pattern::readings(&request.pattern)?;
    let encoding = encoding(&request.encoding)?;
    let hash = hash_of_search(request, tree.path());
    let cursor = request.cursor.as_deref().map(|text| Cursor::read(text, hash)).transpose()?;

    let walked = walk::files(&request.scope, tree, &request.stop)?;
    let left = request.stop.deadline.saturating_duration_since(began);
    let mut engine = Engine {
        request,
        tree,
        walked,
        encoding,
        cursor,
        hash,
        count_until: began + left / 2,
        similar: None,
    };

    let mut outcome = SearchOutcome { dialect_used: request.pattern.dialect, ..Default::default() };
    for (n, reading) in readings.iter().enumerate() {
        // The page continues with the interpretation of the earlier page.
        if engine.cursor.as_ref().is_some_and(|cursor| cursor.dialect() != reading.dialect) {
            continue;
        }
        if n + 1 == readings.len() {
            // Each interpretation reads all files. One of them counts for the explanation.
            engine.similar = Similar::of(request, reading.matcher.ends);
        }
        outcome = engine.search(reading, sink.as_deref_mut());
        if outcome.total.count + outcome.shown != 0 || request.stop.is_reached() {
            break;
        }
    }

    if outcome.total.count == 0 {
        // If the second interpretation found nothing either, report the requested dialect.
        outcome.dialect_used = request.pattern.dialect;
    }

    engine.note(&mut outcome);
    if request.explain_empty && outcome.shown == 0 && !request.stop.is_reached() {
        explain::explain(engine.similar.as_ref(), &mut outcome);
    }
    if request.stop.is_cancelled() {
        return Err(SearchError::Cancelled);
    }

    outcome.elapsed = began.elapsed();
    Ok(outcome)
}

/// State shared by all interpretations of a pattern.
pub(crate) struct Engine<'a> {
    request: &'a Search,
    tree: &'a dyn Tree,
    pub(crate) walked: WalkResult,
    encoding: Option<Option<grep_searcher::Encoding>>,
    cursor: Option<Cursor>,
    hash: u64,
    /// Time at which counting past the page stops, so that it cannot use up the page's deadline.
    count_until: Instant,
    /// Similar patterns that explain an empty answer.
    similar: Option<Similar>,
}

impl Engine<'_> {
    /// Runs one pass for a page with one interpretation of the pattern.
    fn search(&self, reading: &Interpretation, sink: Option<&mut RowSink<'_>>) -> SearchOutcome {
        let options = match sink {
            Some(_) => self.ask_stream(reading),
            None => self.ask(reading),
        };

        let (page, is_past_end) = self.page(&options, sink);
        let is_late = self.request.stop.is_reached();
        let mut outcome = SearchOutcome {
            shown: page.shown,
            total: Total {
                count: page.tally.n_rows,
                is_exact: !is_late && !page.has_stopped && !self.walked.too_many_files,
            },
            truncated: page.truncated,
            files_searched: page.tally.n_searched,
            files_matched: page.tally.n_matched,
            skipped: self.walked.skipped,
            warnings: self.walked.warnings.clone(),
            // A full page is complete except for its total.
            timed_out: is_late && !page.truncated,
            too_many_files: self.walked.too_many_files,
            dialect_used: reading.dialect,
            multiline_used: reading.multiline,
            ..SearchOutcome::default()
        };

        outcome.skipped.add(&page.tally.skipped);
        outcome.warnings.extend(page.tally.warnings);
        outcome.warnings.truncate(MAX_WARNINGS);
        (outcome.unfinished, outcome.n_unfinished) = page.tally.unfinished;

        if is_past_end && outcome.total.count != 0 {
            outcome.notes.push(Note::OffsetPastEnd { total: outcome.total.count });
        }

        if page.truncated {
            let first = self.cursor.as_ref().map_or(self.request.offset, |cursor| cursor.offset);
            let offset = first + page.shown;
            outcome.next_offset = Some(offset);
            let is_basic = reading.dialect == Dialect::Basic;
            outcome.cursor = page.last.map(|(path, line, nth)| {
                Cursor { offset, line, nth, is_basic, path }.write(self.hash)
            });
        }

        outcome.files = page.files;
        outcome
    }

    /// Collects the page, or passes its rows on. Also returns whether the page's start is past the end.
    fn page<'p>(
        &'p self,
        options: &'p ScanOptions,
        sink: Option<&mut RowSink<'_>>,
    ) -> (PageBuilder<'p>, bool) {
        let (mut from, mut skip, mut tally) = (0, Skip::Nothing, Tally::default());
        let mut is_past_end = false;

        let known = self.cursor.as_ref().and_then(|cursor| self.place_of(cursor));
        if let Some(place) = known {
            (from, skip) = place;
            // Earlier pages have counted the rows before the cursor.
            tally.n_rows = self.cursor.as_ref().map_or(0, |cursor| cursor.offset);
        } else {
            let offset = self.cursor.as_ref().map_or(self.request.offset, |cursor| cursor.offset);
            if offset != 0 {
                let seek = self.seek(options, offset);
                tally = seek.tally;
                match seek.found {
                    Some((file, n)) => {
                        (from, skip) = (file, Skip::Rows(n));
                        tally.n_rows += n;
                    }
                    None => is_past_end = true,
                }
            }
        }

        let page = PageBuilder::new(&self.walked, options, tally, self.count_until);
        if is_past_end {
            return (page, true);
        }

        let scan = self.scan(options, from, skip);
        match sink {
            Some(sink) => (scan.run(RowStream::new(page, sink)).into_page(), false),
            None => (scan.run(page), false),
        }
    }

    /// Finds the file that contains the row after `offset` rows.
    fn seek<'p>(&'p self, ask: &'p ScanOptions, offset: u64) -> PageStart<'p> {
        let enough = usize::try_from(offset).unwrap_or(usize::MAX);
        // A file that is read in part may have its NUL byte in the rest. That byte makes it one row, or none.
        let count_all = match ask.binary {
            Binary::Report => true,
            Binary::Skip => ask.count_all,
            Binary::Text => false,
        };
        let counting = ScanOptions { with_rows: false, count_all, limit: enough, ..ask.clone() };
        let seek = PageStart { ask, offset, tally: Tally::default(), found: None };
        self.scan(&counting, 0, Skip::Nothing).run(seek)
    }

    /// Returns the file in which the page after a cursor begins, or `None` if that file no longer exists.
    fn place_of(&self, cursor: &Cursor) -> Option<(usize, Skip)> {
        let places = self.walked.places();
        let target = cursor.path.as_os_str().as_bytes();

        let (at, is_there) = if self.request.scope.sort == Sort::Modified {
            (places.iter().position(|place| self.walked.path(*place) == cursor.path)?, true)
        } else {
            // The paths are sorted, so halving finds the file, or the place where it was.
            let path = |place| self.walked.path(place).into_os_string();
            let at = places.partition_point(|place| path(*place).as_bytes() < target);
            (at, places.get(at).is_some_and(|place| path(*place).as_bytes() == target))
        };

        Some(match self.request.output {
            OutputMode::Lines if is_there => (at, Skip::Through(cursor.line)),
            OutputMode::OnlyMatching if is_there => (at, Skip::Rows(cursor.nth)),
            _ => (at + usize::from(is_there), Skip::Nothing),
        })
    }

    fn scan<'p>(&'p self, ask: &'p ScanOptions, from: usize, skip: Skip) -> Scan<'p> {
        Scan {
            walked: &self.walked,
            tree: self.tree,
            ask,
            stop: &self.request.stop,
            others: self.similar.as_ref().map(|similar| &similar.patterns),
            from,
            skip,
        }
    }

    fn ask(&self, reading: &Interpretation) -> ScanOptions {
        let request = self.request;
        let limit = if request.limit == 0 { MAX_ROWS } else { request.limit.min(MAX_ROWS) };
        let shows_lines = matches!(request.output, OutputMode::Lines);
        let context = |lines: usize| if shows_lines { lines.min(MAX_CONTEXT) } else { 0 };

        ScanOptions {
            matcher: reading.matcher.clone(),
            multiline: reading.multiline,
            folds: reading.folds,
            piece: reading.piece,
            invert: request.invert,
            before: context(request.before),
            after: context(request.after),
            output: request.output,
            max_per_file: request.max_per_file,
            max_line: request.max_line,
            binary: request.binary,
            encoding: self.encoding.clone(),
            limit,
            max_bytes: request.max_bytes,
            max_row: request.max_bytes,
            part_bytes: usize::MAX,
            with_rows: matches!(request.output, OutputMode::Lines | OutputMode::OnlyMatching),
            count_all: request.count_total,
        }
    }

    /// Returns the options of a search whose rows are passed on: without the limits of a page.
    fn ask_stream(&self, reading: &Interpretation) -> ScanOptions {
        let limit = if self.request.limit == 0 { usize::MAX } else { self.request.limit };
        ScanOptions {
            limit,
            max_bytes: usize::MAX,
            part_bytes: MAX_HELD_BYTES,
            ..self.ask(reading)
        }
    }

    /// Adds the notes that apply to every answer.
    fn note(&self, outcome: &mut SearchOutcome) {
        let mut notes = self.walked.notes.clone();
        let pattern = &self.request.pattern;
        if outcome.dialect_used != pattern.dialect {
            notes.push(Note::RetriedAsBasic);
        }
        if pattern.multiline == Multiline::Auto && outcome.multiline_used {
            notes.push(Note::MultilineBecauseOfNewline);
        }

        notes.append(&mut outcome.notes);
        outcome.notes = notes;
    }
}

fn encoding(requested: &Encoding) -> Result<Option<Option<grep_searcher::Encoding>>, SearchError> {
    match requested {
        Encoding::Auto => Ok(None),
        Encoding::None => Ok(Some(None)),
        Encoding::Label(label) => match grep_searcher::Encoding::new(label) {
            Ok(encoding) => Ok(Some(Some(encoding))),
            Err(_) => Err(SearchError::UnknownEncoding { label: label.clone() }),
        },
    }
}
