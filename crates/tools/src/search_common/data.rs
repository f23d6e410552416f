//! Results of search and find as structured data: the same rows as in the text, with all numbers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quackd_search::{
    Dialect, EntryKind, FileHits, FindOutcome, FoundEntry, Note, OutputMode, Row, RowKind,
    SearchOutcome, Skipped, Warning,
};
use serde_json::{Map, Value, json};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Maximum number of match positions in one row. The data of a long line with many matches would be many times
/// its size.
const MAX_SPANS: usize = 100;

/// Returns the result of a search.
pub(crate) fn of_search(outcome: &SearchOutcome, mode: OutputMode, after: usize) -> Value {
    let (name, rows) = match mode {
        OutputMode::Lines | OutputMode::OnlyMatching => {
            ("matches", outcome.files.iter().flat_map(|file| matches(file, after)).collect())
        }
        OutputMode::CountLines => ("counts", counts(outcome, |file| file.lines)),
        OutputMode::CountMatches => ("counts", counts(outcome, |file| file.matches)),
        OutputMode::Files | OutputMode::FilesWithout => {
            ("files", outcome.files.iter().map(|file| named(&file.path).into()).collect())
        }
    };
    json!({
        name: Value::Array(rows),
        "shown": outcome.shown,
        "total": outcome.total.count,
        "totalExact": outcome.total.is_exact,
        "truncated": outcome.truncated,
        "nextOffset": outcome.next_offset,
        "cursor": outcome.cursor,
        "filesSearched": outcome.files_searched,
        "filesMatched": outcome.files_matched,
        "skipped": skipped(&outcome.skipped),
        "warnings": warnings(&outcome.warnings),
        "timedOut": outcome.timed_out,
        "tooManyFiles": outcome.too_many_files,
        "elapsedMs": milliseconds(outcome.elapsed),
        "dialect": match outcome.dialect_used {
            Dialect::Rust => "rust",
            Dialect::Basic => "bre",
        },
        "multiline": outcome.multiline_used,
        "notes": notes(&outcome.notes),
    })
}

/// Returns the result of find.
pub(crate) fn of_find(outcome: &FindOutcome) -> Value {
    json!({
        "entries": outcome.entries.iter().map(entry).collect::<Vec<_>>(),
        "shown": outcome.shown,
        "total": outcome.total.count,
        "totalExact": outcome.total.is_exact,
        "truncated": outcome.truncated,
        "nextOffset": outcome.next_offset,
        "cursor": outcome.cursor,
        "skipped": skipped(&outcome.skipped),
        "unreadable": outcome.unreadable,
        "warnings": warnings(&outcome.warnings),
        "timedOut": outcome.timed_out,
        "tooManyFiles": outcome.too_many_files,
        "elapsedMs": milliseconds(outcome.elapsed),
        "notes": notes(&outcome.notes),
    })
}

pub(crate) fn notes(notes: &[Note]) -> Vec<String> {
    notes.iter().map(ToString::to_string).collect()
}

/// Returns a path as text and, if it is not UTF-8, also as bytes.
pub(crate) fn named(path: &Path) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("path".to_owned(), path.to_string_lossy().into());
    if path.to_str().is_none() {
        object.insert("pathBytes".to_owned(), STANDARD.encode(path.as_os_str().as_bytes()).into());
    }
    object
}

/// Returns the matching rows of a file with their context. No line occurs twice: a line between two matches
/// belongs to the first match, up to its number of following lines.
fn matches(file: &FileHits, after: usize) -> Vec<Value> {
    let mut found: Vec<Map<String, Value>> = Vec::new();
    let (mut before, mut n_after, mut is_open) = (Vec::new(), 0, false);
    for row in &file.rows {
        is_open &= !row.after_gap;
        if row.kind == RowKind::Match {
            let mut object = named(&file.path);
            describe(&mut object, row, file.is_binary);
            insert_unless_empty(&mut object, "before", std::mem::take(&mut before));
            found.push(object);
            (n_after, is_open) = (0, true);
            continue;
        }
        let line = json!({"line": row.line, "text": String::from_utf8_lossy(&row.text)});
        match found.last_mut().filter(|_| is_open && n_after < after) {
            Some(last) => {
                n_after += 1;
                if let Value::Array(lines) = last.entry("after").or_insert_with(|| json!([])) {
                    lines.push(line);
                }
            }
            None => before.push(line),
        }
    }
    // The remaining lines are context before a match on the next page.
    found.into_iter().map(Value::Object).collect()
}

fn insert_unless_empty(object: &mut Map<String, Value>, name: &str, values: Vec<Value>) {
    if !values.is_empty() {
        object.insert(name.to_owned(), values.into());
    }
}

fn describe(object: &mut Map<String, Value>, row: &Row, is_binary: bool) {
    object.insert("line".to_owned(), row.line.into());
    if row.end_line != row.line {
        object.insert("endLine".to_owned(), row.end_line.into());
    }
    object.insert("column".to_owned(), row.column.into());
    object.insert("text".to_owned(), String::from_utf8_lossy(&row.text).into());
    let shown = row.spans.iter().take(MAX_SPANS);
    let place = |at: usize| row.text.get(..at).map(|head| String::from_utf8_lossy(head).len());
    let spans: Vec<Value> =
        shown.map(|span| json!({"start": place(span.start), "end": place(span.end)})).collect();
    object.insert("submatches".to_owned(), spans.into());
    if MAX_SPANS < row.spans.len() {
        object.insert("moreSubmatches".to_owned(), (row.spans.len() - MAX_SPANS).into());
    }
    if let Some(cut) = row.cut {
        object.insert("leftOut".to_owned(), json!({"before": cut.before, "after": cut.after}));
    }
    if is_binary {
        object.insert("binary".to_owned(), true.into());
    }
}

fn counts(outcome: &SearchOutcome, count: impl Fn(&FileHits) -> u64) -> Vec<Value> {
    let row = |file: &FileHits| {
        let mut object = named(&file.path);
        object.insert("count".to_owned(), count(file).into());
        object.into()
    };
    outcome.files.iter().map(row).collect()
}

fn entry(entry: &FoundEntry) -> Value {
    let mut object = named(&entry.path);
    let kind = match entry.kind {
        EntryKind::File => "file",
        EntryKind::Directory => "dir",
        EntryKind::Symlink => "symlink",
    };
    object.insert("kind".to_owned(), kind.into());
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            object.insert(name.to_owned(), value);
        }
    };
    put("size", entry.size.map(Value::from));
    put("modified", entry.modified.and_then(timestamp).map(Value::from));
    put("mode", entry.mode.map(|mode| format!("{mode:04o}").into()));
    put("score", entry.score.map(Value::from));
    object.into()
}

/// Formats a time as ISO 8601 with whole seconds in UTC. `None` for years that the format cannot express.
pub(crate) fn timestamp(time: SystemTime) -> Option<String> {
    let time = jiff::Timestamp::try_from(time).ok()?;
    jiff::Timestamp::from_second(time.as_second()).ok().map(|time| time.to_string())
}

fn skipped(skipped: &Skipped) -> Value {
    json!({
        "ignored": skipped.ignored,
        "hidden": skipped.hidden,
        "binary": skipped.binary,
        "tooLarge": skipped.too_large,
        "tooLong": skipped.too_long,
        "unreadable": skipped.unreadable,
        "notRegular": skipped.not_regular,
        "filtered": skipped.filtered,
    })
}

fn warnings(warnings: &[Warning]) -> Vec<Value> {
    let told = |warning: &Warning| {
        let mut object = named(&warning.path);
        object.insert("message".to_owned(), warning.reason.as_str().into());
        object.into()
    };
    warnings.iter().map(told).collect()
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_search::Cut;
    use std::ffi::OsStr;
    use std::sync::Arc;

    fn row(kind: RowKind, line: u64, after_gap: bool) -> Row {
        let spans = match kind {
            RowKind::Match => std::iter::once(1..2).collect(),
            RowKind::Context => Vec::new(),
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
        let shape: Vec<String> = matches(&hits(rows), 1)
            .iter()
            .map(|found| {
                let lines = |name: &str| -> Vec<u64> {
                    let all = found[name].as_array().cloned().unwrap_or_default();
                    all.iter().map(|line| line["line"].as_u64().unwrap()).collect()
                };
                format!("{:?}{}{:?}", lines("before"), found["line"], lines("after"))
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
        let found = matches(&FileHits { path, ..hits(vec![odd]) }, 0);
        let expected = json!([{"path": "a\u{fffd}", "pathBytes": "Yf8=", "line": 7, "endLine": 8, "column": 2,
            "text": "\u{fffd}ab", "submatches": [{"start": 3, "end": 4}], "leftOut": {"before": 3, "after": 4}}]);
        assert_eq!(Value::from(found), expected);
        let many = Row { spans: vec![0..1; 150], ..row(RowKind::Match, 1, false) };
        let found = matches(&hits(vec![many]), 0);
        assert_eq!(found[0]["submatches"].as_array().unwrap().len(), 100);
        assert_eq!(found[0]["moreSubmatches"], 50);
    }

    #[test]
    fn files_and_counts_have_rows_of_their_own() {
        let outcome =
            SearchOutcome { files: vec![hits(Vec::new())], shown: 1, ..SearchOutcome::default() };
        let rows = |mode, name: &str| of_search(&outcome, mode, 0)[name].clone();
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
