//! Results of search and find as structured data: the same rows as in the text, with all numbers.

use super::text::decoded;
use crate::Data;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quackd_protocol::search::{
    self, ContextLine, FileRow, FindRow, LeftOut, LineRow, Match, Places, SearchPage, Span,
};
use quackd_search::{
    Cut, Dialect, EntryKind, FileHits, FindOutcome, FoundEntry, Note, OutputMode, Row, RowKind,
    SearchOutcome, Skipped, Warning,
};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Maximum number of match positions in one row. The data of a long line with many matches would be many times
/// its size.
const MAX_SPANS: usize = 100;

/// Returns the result of a search. A match gets at most `after` of the lines of context that follow it.
#[must_use]
pub fn of_search(outcome: &SearchOutcome, mode: OutputMode, after: usize) -> Data {
    let files = || Some(outcome.files.iter().map(|file| file_row(file, mode)).collect());
    // Declared before the page, which borrows from it.
    let names: Vec<Name>;
    let mut page = SearchPage {
        shown: outcome.shown,
        total: outcome.total.count,
        total_exact: outcome.total.is_exact,
        truncated: outcome.truncated,
        next_offset: outcome.next_offset,
        cursor: outcome.cursor.clone(),
        files_searched: Some(outcome.files_searched),
        files_matched: Some(outcome.files_matched),
        skipped: skipped(&outcome.skipped),
        warnings: warnings(&outcome.warnings),
        unfinished: warnings(&outcome.unfinished),
        timed_out: outcome.timed_out,
        too_many_files: outcome.too_many_files,
        elapsed_ms: milliseconds(outcome.elapsed),
        dialect: Some(match outcome.dialect_used {
            Dialect::Rust => "rust".to_owned(),
            Dialect::Basic => "bre".to_owned(),
        }),
        multiline: Some(outcome.multiline_used),
        notes: notes(&outcome.notes),
        ..SearchPage::default()
    };

    match mode {
        OutputMode::Lines | OutputMode::OnlyMatching => {
            names = outcome.files.iter().map(|file| name(&file.path)).collect();
            let files = outcome.files.iter().zip(&names);
            page.matches =
                Some(files.flat_map(|(file, name)| matches(file, name, after)).collect());
        }
        OutputMode::CountLines | OutputMode::CountMatches => page.counts = files(),
        OutputMode::Files | OutputMode::FilesWithout => page.files = files(),
    }
    Data::of(&page)
}

/// Returns a file as a row.
pub(crate) fn file_row(file: &FileHits, mode: OutputMode) -> FileRow {
    let (path, path_bytes) = name(&file.path);
    let count = match mode {
        OutputMode::CountLines => Some(file.lines),
        OutputMode::CountMatches => Some(file.matches),
        _ => None,
    };
    FileRow { path, path_bytes, count }
}

/// Returns the result of find.
#[must_use]
pub fn of_find(outcome: &FindOutcome) -> Data {
    Data::of(&SearchPage {
        entries: Some(outcome.entries.iter().map(entry).collect()),
        shown: outcome.shown,
        total: outcome.total.count,
        total_exact: outcome.total.is_exact,
        truncated: outcome.truncated,
        next_offset: outcome.next_offset,
        cursor: outcome.cursor.clone(),
        skipped: skipped(&outcome.skipped),
        unreadable: Some(outcome.unreadable),
        warnings: warnings(&outcome.warnings),
        timed_out: outcome.timed_out,
        too_many_files: outcome.too_many_files,
        elapsed_ms: milliseconds(outcome.elapsed),
        notes: notes(&outcome.notes),
        ..SearchPage::default()
    })
}

pub(crate) fn notes(notes: &[Note]) -> Vec<String> {
    notes.iter().map(ToString::to_string).collect()
}

/// A path as text and, if it is not UTF-8, also its bytes as base64.
type Name = (String, Option<String>);

/// Returns the name of a path.
pub(crate) fn name(path: &Path) -> Name {
    let bytes = path.to_str().is_none().then(|| STANDARD.encode(path.as_os_str().as_bytes()));
    (path.to_string_lossy().into_owned(), bytes)
}

/// Returns a path as an object, like [`name`].
pub(crate) fn named(path: &Path) -> Map<String, Value> {
    let (path, bytes) = name(path);
    let bytes = bytes.map(|bytes| ("pathBytes".to_owned(), bytes.into()));
    std::iter::once(("path".to_owned(), path.into())).chain(bytes).collect()
}

/// Returns the matching rows of a file with their context. No line occurs twice: a line between two matches
/// belongs to the first match, up to its number of following lines.
fn matches<'a>(file: &'a FileHits, name: &'a Name, after: usize) -> Vec<Match<'a>> {
    let mut all: Vec<Match<'_>> = Vec::with_capacity(file.rows.len());
    let (path, path_bytes) = name;
    let (mut before, mut is_open) = (Vec::new(), false);

    for row in &file.rows {
        is_open &= !row.after_gap;
        if row.kind == RowKind::Match {
            let of_row = of_row(file, path, path_bytes.as_deref(), row);
            all.push(Match { before: std::mem::take(&mut before), ..of_row });
            is_open = true;
            continue;
        }

        let line = ContextLine { line: row.line, text: decoded(&row.text) };
        match all.last_mut().filter(|last| is_open && last.after.len() < after) {
            Some(last) => last.after.push(line),
            None => before.push(line),
        }
    }

    // The remaining lines are context before a match on the next page.
    all
}

fn of_row<'a>(
    file: &FileHits,
    path: &'a str,
    path_bytes: Option<&'a str>,
    row: &'a Row,
) -> Match<'a> {
    let text = decoded(&row.text);
    // Positions of the engine are in bytes. The data needs them in the decoded text.
    let place = |at: usize| match &text {
        Cow::Borrowed(text) if text.is_char_boundary(at) => Some(at),
        _ => row.text.get(..at).map(|head| decoded(head).len()),
    };

    let kept = row.spans.iter().take(MAX_SPANS);
    let submatches =
        kept.map(|span| Span { start: place(span.start), end: place(span.end) }).collect();

    Match {
        path: path.into(),
        path_bytes: path_bytes.map(Cow::from),
        line: row.line,
        end_line: (row.end_line != row.line).then_some(row.end_line),
        column: Some(row.column),
        submatches,
        text,
        more_submatches: row.spans.len().checked_sub(MAX_SPANS).filter(|more| *more != 0),
        left_out: row.cut.map(|cut| LeftOut { before: count(cut.before), after: count(cut.after) }),
        binary: file.is_binary,
        ..Match::default()
    }
}

/// Returns a row of a stream.
pub(crate) fn line_row(row: &Row) -> LineRow<'_> {
    let text = decoded(&row.text);
    // Only replaced bytes move the text.
    let place = |at: usize| match &text {
        Cow::Borrowed(_) => at,
        Cow::Owned(_) => String::from_utf8_lossy(row.text.get(..at).unwrap_or_default()).len(),
    };

    let spans = match row.kind {
        RowKind::Context => Places::default(),
        RowKind::Match => {
            let kept = row.spans.iter().take(MAX_SPANS);
            let places = kept.flat_map(|span| [span.start, span.end]);
            std::iter::once(row.column).chain(places.map(|at| count(place(at)))).collect()
        }
    };

    let is_whole = row.cut.is_none() && row.end_line == row.line;
    let cut = row.cut.unwrap_or(Cut { before: 0, after: 0 });
    let rest = (!is_whole).then(|| (row.end_line, count(cut.before), count(cut.after)));
    LineRow(row.line, text, spans, rest)
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

pub(crate) fn entry(entry: &FoundEntry) -> FindRow {
    let (path, path_bytes) = name(&entry.path);
    let kind = match entry.kind {
        EntryKind::File => "file",
        EntryKind::Directory => "dir",
        EntryKind::Symlink => "symlink",
    };

    FindRow {
        path,
        path_bytes,
        kind: kind.to_owned(),
        size: entry.size,
        modified: entry.modified.and_then(timestamp),
        mode: entry.mode.map(|mode| format!("{mode:04o}")),
        score: entry.score.map(u64::from),
    }
}

/// Formats a time as ISO 8601 with whole seconds in UTC. `None` for years that the format cannot express.
pub(crate) fn timestamp(time: SystemTime) -> Option<String> {
    let time = jiff::Timestamp::try_from(time).ok()?;
    jiff::Timestamp::from_second(time.as_second()).ok().map(|time| time.to_string())
}

fn skipped(skipped: &Skipped) -> BTreeMap<String, u64> {
    let reasons = [
        ("ignored", skipped.ignored),
        ("hidden", skipped.hidden),
        ("binary", skipped.binary),
        ("tooLarge", skipped.too_large),
        ("tooLong", skipped.too_long),
        ("unreadable", skipped.unreadable),
        ("notRegular", skipped.not_regular),
        ("filtered", skipped.filtered),
    ];
    reasons.map(|(name, n)| (name.to_owned(), n)).into()
}

fn warnings(warnings: &[Warning]) -> Vec<search::Warning> {
    let row = |warning: &Warning| {
        let (path, path_bytes) = name(&warning.path);
        search::Warning { path, path_bytes, message: warning.reason.clone() }
    };
    warnings.iter().map(row).collect()
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_search::Spans;
    use serde_json::json;
    use std::ffi::OsStr;
    use std::sync::Arc;

    fn row(kind: RowKind, line: u64, after_gap: bool) -> Row {
        let spans = match kind {
            RowKind::Match => std::iter::once(1..2).collect(),
            RowKind::Context => Spans::new(),
        };
        let text = format!("l{line}").into_bytes();
        Row { kind, line, end_line: line, column: 2, text, spans, cut: None, after_gap }
    }

    fn hits(rows: Vec<Row>) -> FileHits {
        FileHits { path: Arc::from(Path::new("f")), lines: 2, matches: 3, is_binary: false, rows }
    }

    #[test]
    fn context_belongs_to_one_match_only() {
        use RowKind::{Context, Match};
        let rows = vec![
            row(Context, 1, false),
            row(Match, 2, false),
            row(Context, 3, false),
            row(Context, 4, false),
            row(Match, 5, false),
            row(Context, 6, false),
            row(Context, 9, true),
            row(Match, 10, false),
        ];
        let name = ("f".to_owned(), None);
        let shape: Vec<String> = matches(&hits(rows), &name, 1)
            .iter()
            .map(|found| {
                let lines =
                    |all: &[ContextLine<'_>]| all.iter().map(|it| it.line).collect::<Vec<_>>();
                format!("{:?}{}{:?}", lines(&found.before), found.line, lines(&found.after))
            })
            .collect();
        assert_eq!(shape, ["[1]2[3]", "[4]5[6]", "[9]10[]"]);
    }

    #[test]
    fn a_match_is_told_with_its_places_in_the_text_that_is_shown() {
        let cut = Some(Cut { before: 3, after: 4 });
        let text = b"\xffab".to_vec();
        let spans = std::iter::once(1..2).collect();
        let odd = Row { text, cut, spans, end_line: 8, ..row(RowKind::Match, 7, false) };
        let path: Arc<Path> = Arc::from(Path::new(OsStr::from_bytes(b"a\xff")));
        let (file, plain) = (FileHits { path, ..hits(vec![odd]) }, name(Path::new("f")));
        let odd_name = name(&file.path);
        let found = matches(&file, &odd_name, 0);
        let expected = json!([{"path": "a\u{fffd}", "pathBytes": "Yf8=", "line": 7, "endLine": 8, "column": 2,
            "text": "\u{fffd}ab", "submatches": [{"start": 3, "end": 4}], "leftOut": {"before": 3, "after": 4}}]);
        assert_eq!(serde_json::to_value(found).unwrap(), expected);
        let file =
            hits(vec![Row { spans: vec![0..1; 150].into(), ..row(RowKind::Match, 1, false) }]);
        let found = matches(&file, &plain, 0);
        assert_eq!((found[0].submatches.len(), found[0].more_submatches), (100, Some(50)));
    }

    #[test]
    fn files_and_counts_have_rows_of_their_own() {
        let outcome =
            SearchOutcome { files: vec![hits(Vec::new())], shown: 1, ..SearchOutcome::default() };
        let rows = |mode, name: &str| of_search(&outcome, mode, 0).value()[name].clone();
        assert_eq!(rows(OutputMode::Files, "files"), json!([{"path": "f"}]));
        assert_eq!(rows(OutputMode::CountLines, "counts"), json!([{"path": "f", "count": 2}]));
        assert_eq!(rows(OutputMode::CountMatches, "counts"), json!([{"path": "f", "count": 3}]));
    }

    #[test]
    fn times_are_whole_seconds_of_utc() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(86_400_999);
        assert_eq!(timestamp(time).as_deref(), Some("1970-01-02T00:00:00Z"));
    }
}
