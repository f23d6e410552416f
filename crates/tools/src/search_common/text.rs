//! Formats rows and notes as text for a model.
//!
//! A row is `path:line:text`, a line of context `path-line-text`, as in grep. `--` marks omitted lines between
//! them. Notes that explain the rows follow in brackets, one per line.

use crate::call_limits::seconds;
use quackd_search::{
    FileHits, FindOutcome, Note, OutputMode, Row, RowKind, SearchOutcome, Total, Warning,
};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// Format of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Write `--` for omitted lines. Set if there is context.
    pub gaps: bool,
    /// Keep the carriage return at the end of a line.
    pub carriage_returns: bool,
}

/// Formats a path for answers.
#[must_use]
pub fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Decodes a text. Most texts are valid, and the check alone is faster than a replacement.
pub(crate) fn decoded(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// Passes each row with its newline to `take`, and with the line `--` before it if lines are omitted, until `take`
/// returns false.
pub fn rows(files: &[FileHits], style: Style, take: &mut dyn FnMut(&str) -> bool) {
    let mut is_first = true;
    let mut block = String::new();
    for file in files {
        let path = file.path.to_string_lossy();
        let mut is_first_of_file = true;
        for row in &file.rows {
            let is_gap = if is_first_of_file { !is_first } else { row.after_gap };
            block.clear();
            if style.gaps && is_gap {
                block.push_str("--\n");
            }
            (is_first, is_first_of_file) = (false, false);
            push_row(&mut block, &path, file.is_binary, row, style);
            if !take(&block) {
                return;
            }
        }
    }
}

fn push_row(text: &mut String, path: &str, is_binary: bool, row: &Row, style: Style) {
    if is_binary && row.text.is_empty() && row.spans.is_empty() {
        text.push_str(path);
        text.push_str(": binary file matches\n");
        return;
    }

    let mark = match row.kind {
        RowKind::Match => ':',
        RowKind::Context => '-',
    };

    for (number, line) in (row.line..).zip(visible(row).split('\n')) {
        text.push_str(path);
        // Writing to a String cannot fail.
        write!(text, "{mark}{number}{mark}").ok();
        text.push_str(end(line, style));
        text.push('\n');
    }
}

/// Returns the lines of a row, several if a match crosses lines, with marks where it is cut.
pub fn lines(row: &Row, style: Style) -> impl Iterator<Item = String> {
    let lines: Vec<String> =
        visible(row).split('\n').map(|line| end(line, style).to_owned()).collect();
    lines.into_iter()
}

/// Returns the text of a row with marks where it is cut.
fn visible(row: &Row) -> Cow<'_, str> {
    let text = decoded(&row.text);
    let Some(cut) = row.cut else { return text };
    let before = (cut.before != 0).then(|| format!("[+{}]…", cut.before));
    let after = (cut.after != 0).then(|| format!("…[+{}]", cut.after));
    Cow::Owned(before.unwrap_or_default() + &text + &after.unwrap_or_default())
}

/// Returns a line with the end that `style` requests.
fn end(line: &str, style: Style) -> &str {
    if style.carriage_returns { line } else { line.strip_suffix('\r').unwrap_or(line) }
}

/// Passes one line per file to `take`, in the file modes, until `take` returns false.
pub fn files(outcome: &SearchOutcome, mode: OutputMode, take: &mut dyn FnMut(&str) -> bool) {
    for file in &outcome.files {
        let path = file.path.to_string_lossy();
        let line = match mode {
            OutputMode::CountLines => format!("{path}:{}\n", file.lines),
            OutputMode::CountMatches => format!("{path}:{}\n", file.matches),
            _ => format!("{path}\n"),
        };
        if !take(&line) {
            return;
        }
    }
}

/// Lines after the rows of search and find.
#[derive(Debug, Clone, Copy)]
pub struct ResultNotes<'a> {
    pub(crate) shown: u64,
    pub(crate) total: Total,
    pub(crate) truncated: bool,
    pub(crate) next_offset: Option<u64>,
    pub(crate) cursor: Option<&'a str>,
    pub(crate) notes: &'a [Note],
    pub(crate) warnings: &'a [Warning],
    pub(crate) n_unreadable: u64,
    pub(crate) unfinished: &'a [Warning],
    pub(crate) n_unfinished: u64,
    pub(crate) too_many_files: bool,
    pub(crate) timed_out: bool,
}

impl<'a> ResultNotes<'a> {
    /// Returns the notes on a search.
    #[must_use]
    pub fn of_search(outcome: &'a SearchOutcome) -> Self {
        Self {
            shown: outcome.shown,
            total: outcome.total,
            truncated: outcome.truncated,
            next_offset: outcome.next_offset,
            cursor: outcome.cursor.as_deref(),
            notes: &outcome.notes,
            warnings: &outcome.warnings,
            n_unreadable: outcome.skipped.unreadable,
            unfinished: &outcome.unfinished,
            n_unfinished: outcome.n_unfinished,
            too_many_files: outcome.too_many_files,
            timed_out: outcome.timed_out,
        }
    }

    /// Returns the notes on the result of find.
    #[must_use]
    pub fn of_find(outcome: &'a FindOutcome) -> Self {
        Self {
            shown: outcome.shown,
            total: outcome.total,
            truncated: outcome.truncated,
            next_offset: outcome.next_offset,
            cursor: outcome.cursor.as_deref(),
            notes: &outcome.notes,
            warnings: &outcome.warnings,
            n_unreadable: outcome.unreadable,
            unfinished: &[],
            n_unfinished: 0,
            too_many_files: outcome.too_many_files,
            timed_out: outcome.timed_out,
        }
    }

    /// Omits further results and hints, which are in terms of quackd's tools.
    #[must_use]
    pub fn only_warnings(self) -> Self {
        Self { truncated: false, notes: &[], ..self }
    }

    /// Returns the lines, most important first. `limit` is the time limit of the search.
    #[must_use]
    pub fn lines(&self, limit: Duration) -> Vec<String> {
        let mut lines: Vec<String> = self.more().into_iter().collect();
        lines.extend(self.notes.iter().map(|note| format!("[Note: {note}{}]", hint(note))));
        lines.extend(self.too_many_files.then(|| TOO_MANY_FILES.to_owned()));
        lines.extend(unreadable(self.n_unreadable));
        lines.extend(self.warnings.iter().map(warning));
        lines.extend(unfinished(self.unfinished, self.n_unfinished));
        lines.extend(self.timed_out.then(|| timed_out(limit)));
        lines
    }

    /// Returns the line about further results and how to get them.
    fn more(&self) -> Option<String> {
        if !self.truncated {
            return None;
        }

        let Self { shown, total, .. } = self;
        let is_last = |offset: u64| total.is_exact && total.count <= offset;
        let go_on = match (self.next_offset, self.cursor) {
            (Some(offset), _) if !is_last(offset) => format!("; go on with offset {offset}"),
            (None, Some(cursor)) => format!("; go on with cursor {cursor}"),
            _ => return Some("[The row is too long and is cut]".to_owned()),
        };

        let at_least = if total.is_exact { "" } else { "at least " };
        // The total is unknown beyond the shown rows.
        let of = if total.count <= *shown {
            "more".to_owned()
        } else {
            format!("{at_least}{}", total.count)
        };
        Some(format!("[{shown} of {of} shown{go_on}]"))
    }
}

/// Line for a workspace with more files than the engine visits.
pub const TOO_MANY_FILES: &str = "[Warning: Too many files, only some were searched]";

/// Returns the line about unreadable paths, if there are any.
#[must_use]
pub fn unreadable(n_paths: u64) -> Option<String> {
    (n_paths != 0).then(|| format!("[Warning: Skipped {n_paths} unreadable path(s)]"))
}

/// Returns the lines about files that were not searched to the end: their number, and the first of them.
#[must_use]
pub fn unfinished(first: &[Warning], n_files: u64) -> Vec<String> {
    let number = (n_files != 0)
        .then(|| format!("[Warning: {n_files} file(s) were not searched to the end]"));
    number.into_iter().chain(first.iter().map(warning)).collect()
}

fn warning(it: &Warning) -> String {
    format!("[Warning] {} ({})", it.path.display(), it.reason)
}

/// Returns the line about a timeout.
#[must_use]
pub fn timed_out(limit: Duration) -> String {
    format!("[Search timed out after {}; results are incomplete]", seconds(limit))
}

/// Returns the advice for a note, in terms of quackd's tools.
fn hint(note: &Note) -> &'static str {
    match note {
        Note::IgnoredOrHidden { .. } => "; ignore:\"none\" and hidden:true do",
        Note::LiteralOccurs { .. } => "; mode:\"literal\" finds them",
        Note::OtherCaseMatches { .. } => "; case:\"insensitive\" finds them",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_search::{Cut, Spans};
    use std::sync::Arc;

    const PLAIN: Style = Style { gaps: false, carriage_returns: false };

    fn row(line: u64, text: &str) -> Row {
        Row {
            kind: RowKind::Match,
            line,
            end_line: line,
            column: 1,
            text: text.into(),
            spans: std::iter::once(0..1).collect(),
            cut: None,
            after_gap: false,
        }
    }

    fn context(line: u64, text: &str) -> Row {
        Row { kind: RowKind::Context, spans: Spans::new(), ..row(line, text) }
    }

    fn file(path: &str, rows: Vec<Row>) -> FileHits {
        FileHits { path: Arc::from(Path::new(path)), lines: 1, matches: 2, is_binary: false, rows }
    }

    fn text(files: &[FileHits], style: Style) -> String {
        let mut text = String::new();
        rows(files, style, &mut |row| {
            text.push_str(row);
            true
        });
        text
    }

    #[test]
    fn rows_and_context_are_written_as_grep_does() {
        let far = Row { after_gap: true, ..row(9, "z") };
        let files = [
            file("a/x", vec![context(1, "p"), row(2, "q\r"), context(3, "r"), far]),
            file("b", vec![row(1, "s")]),
        ];
        let with_gaps = Style { gaps: true, ..PLAIN };
        assert_eq!(text(&files, with_gaps), "a/x-1-p\na/x:2:q\na/x-3-r\n--\na/x:9:z\n--\nb:1:s\n");
        let raw = Style { carriage_returns: true, ..PLAIN };
        assert_eq!(text(&files, raw), "a/x-1-p\na/x:2:q\r\na/x-3-r\na/x:9:z\nb:1:s\n");
    }

    #[test]
    fn a_match_across_lines_and_a_cut_row_are_told_line_by_line() {
        let across = Row { end_line: 5, ..row(4, "one\r\ntwo") };
        let cut = Row { cut: Some(Cut { before: 120, after: 4000 }), ..row(7, "mid") };
        let files = [file("f", vec![across, cut])];
        assert_eq!(text(&files, PLAIN), "f:4:one\nf:5:two\nf:7:[+120]…mid…[+4000]\n");
        let binary = FileHits {
            is_binary: true,
            ..file("bin", vec![Row { spans: Spans::new(), ..row(0, "") }])
        };
        assert_eq!(text(&[binary], PLAIN), "bin: binary file matches\n");
    }

    #[test]
    fn what_follows_the_rows_says_how_much_is_missing_and_why() {
        let closing = ResultNotes {
            shown: 100,
            total: Total { count: 2345, is_exact: true },
            truncated: true,
            next_offset: Some(100),
            cursor: Some("c"),
            notes: &[],
            warnings: &[],
            n_unreadable: 0,
            unfinished: &[],
            n_unfinished: 0,
            too_many_files: false,
            timed_out: false,
        };
        let lines = |closing: ResultNotes<'_>| closing.lines(Duration::from_secs(9));
        assert_eq!(lines(closing), ["[100 of 2345 shown; go on with offset 100]"]);
        let vague = Total { count: 2345, is_exact: false };
        let more = ResultNotes { total: vague, next_offset: None, ..closing };
        assert_eq!(lines(more), ["[100 of at least 2345 shown; go on with cursor c]"]);
        let uncounted =
            ResultNotes { shown: 100, total: Total { count: 100, is_exact: false }, ..closing };
        assert_eq!(lines(uncounted), ["[100 of more shown; go on with offset 100]"]);
        let cut = ResultNotes { next_offset: Some(2345), ..closing };
        assert_eq!(lines(cut), ["[The row is too long and is cut]"]);
        let all = ResultNotes {
            truncated: false,
            notes: &[Note::IgnoredOrHidden { ignored: 1, hidden: 2 }],
            warnings: &[Warning { path: "a".into(), reason: "Permission denied".into() }],
            n_unreadable: 7,
            unfinished: &[],
            n_unfinished: 0,
            too_many_files: true,
            timed_out: true,
            ..closing
        };
        assert_eq!(
            lines(all),
            [
                "[Note: 1 ignored and 2 hidden files or directories were not searched; ignore:\"none\" and hidden:true do]",
                "[Warning: Too many files, only some were searched]",
                "[Warning: Skipped 7 unreadable path(s)]",
                "[Warning] a (Permission denied)",
                "[Search timed out after 9s; results are incomplete]",
            ]
        );
    }
}
