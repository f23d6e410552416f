//! Reader for the data of `search` and `find`. The data comes from a worker and may be faulty: missing fields get
//! defaults, and numbers are bounded.

use quackd_protocol::search::{ContextLine, FileRow, FindRow, Match, SearchPage, Warning};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Maximum line number. It leaves room for additions without overflow.
const MAX_NUMBER: u64 = 1 << 60;

/// One page of a result.
#[derive(Debug, Default)]
pub(crate) struct ResultPage {
    /// Matching lines and context lines, in order.
    pub(crate) hits: Vec<Hit>,
    /// Binary files that match. Their lines are not shown.
    pub(crate) binaries: Vec<String>,
    /// Files, with a count if one was requested.
    pub(crate) names: Vec<FileRow>,
    /// Row of a `find` result.
    pub(crate) entries: Vec<FindRow>,
    /// Number of rows, without context.
    pub(crate) shown: u64,
    /// Cursor of the next page, if any.
    pub(crate) cursor: Option<String>,
    /// Offset of the next page, for tools without a cursor.
    pub(crate) next_offset: Option<u64>,
    /// Whether the search timed out, so that results may be missing.
    pub(crate) timed_out: bool,
    /// Whether there were too many files, so that results are missing.
    pub(crate) too_many_files: bool,
    /// Number of files read.
    pub(crate) files_searched: Option<u64>,
    /// Number of skipped files by reason.
    pub(crate) skipped: BTreeMap<String, u64>,
    /// First paths that could not be read.
    pub(crate) warnings: Vec<Warning>,
    /// Notes of the tool for the user.
    pub(crate) notes: Vec<String>,
    /// Number of paths that are not UTF-8 and are shown modified.
    pub(crate) n_changed_names: u64,
}

/// Line, or the lines of one match.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hit {
    /// Path from the tool, or its displayed form.
    pub(crate) path: Arc<str>,
    /// Line number, from 1.
    pub(crate) line: u64,
    /// Number of the last line.
    pub(crate) end_line: u64,
    /// Position of the first match in the line, in bytes from 1. `None` for context.
    pub(crate) column: Option<u64>,
    /// Text without the last line end.
    pub(crate) text: String,
    /// Byte ranges of `text` that match. Not validated: they may lie outside of it.
    pub(crate) spans: Vec<Range<usize>>,
    /// Number of bytes of the line cut before and after `text`.
    pub(crate) cut: (u64, u64),
    /// Whether this is a match and not context.
    pub(crate) is_match: bool,
}

impl ResultPage {
    /// Reads the data of `search` or `find`.
    ///
    /// # Errors
    /// If the data has another shape.
    pub(crate) fn read(data: &Value) -> anyhow::Result<Self> {
        let data = SearchPage::deserialize(data)
            .map_err(|error| anyhow::anyhow!("unexpected reply of the worker: {error}"))?;
        let mut page = Self {
            shown: data.shown,
            cursor: data.cursor,
            next_offset: data.next_offset,
            timed_out: data.timed_out,
            too_many_files: data.too_many_files,
            files_searched: data.files_searched,
            skipped: data.skipped,
            warnings: data.warnings,
            notes: data.notes,
            ..Self::default()
        };
        if let Some(n) = data.unreadable.filter(|n| *n != 0) {
            page.skipped.insert("unreadable".to_owned(), n);
        }
        for found in data.matches.unwrap_or_default() {
            page.n_changed_names += u64::from(found.path_bytes.is_some());
            match found.binary {
                true => page.binaries.push(found.path),
                false => add_hits(found, &mut page.hits),
            }
        }
        page.names = data.files.into_iter().chain(data.counts).flatten().collect();
        page.entries = data.entries.unwrap_or_default();
        let names = page.names.iter().map(|file| &file.path_bytes);
        let names = names.chain(page.entries.iter().map(|entry| &entry.path_bytes));
        page.n_changed_names += u64::try_from(names.flatten().count())?;
        Ok(page)
    }
}

/// Adds the lines of a match with their context.
fn add_hits(found: Match, hits: &mut Vec<Hit>) {
    // The lines of one file share the allocation of its name.
    let path = match hits.last() {
        Some(last) if *last.path == *found.path => last.path.clone(),
        _ => Arc::from(found.path),
    };
    let context = |line: ContextLine| Hit {
        path: path.clone(),
        line: line.line.min(MAX_NUMBER),
        end_line: line.line.min(MAX_NUMBER),
        column: None,
        text: line.text,
        spans: Vec::new(),
        cut: (0, 0),
        is_match: false,
    };
    hits.extend(found.before.into_iter().map(context));
    let line = found.line.min(MAX_NUMBER);
    let left_out = found.left_out.unwrap_or_default();
    let spans = found.submatches.iter().filter_map(|span| Some(span.start?..span.end?));
    hits.push(Hit {
        path: path.clone(),
        line,
        end_line: found.end_line.unwrap_or(line).clamp(line, MAX_NUMBER),
        column: found.column,
        text: found.text,
        spans: spans.collect(),
        cut: (left_out.before, left_out.after),
        is_match: true,
    });
    hits.extend(found.after.into_iter().map(context));
}

impl Hit {
    /// Creates a match for tests.
    #[cfg(test)]
    pub(crate) fn of(path: &str, line: u64) -> Self {
        Self {
            path: path.into(),
            line,
            end_line: line,
            column: None,
            text: String::new(),
            spans: Vec::new(),
            cut: (0, 0),
            is_match: true,
        }
    }

    /// Returns the JSON line of the hit.
    pub(crate) fn json(&self) -> Value {
        let Self { path, line, text, .. } = self;
        if !self.is_match {
            return json!({"type": "context", "path": &**path, "line": line, "text": text});
        }
        let spans: Vec<Value> =
            self.spans.iter().map(|span| json!({"start": span.start, "end": span.end})).collect();
        let mut document = json!({"type": "match", "path": &**path, "line": line,
            "column": self.column, "text": text, "submatches": spans});
        if let Some(map) = document.as_object_mut() {
            if self.end_line != *line {
                map.insert("endLine".to_owned(), self.end_line.into());
            }
            if self.cut != (0, 0) {
                let left_out = json!({"before": self.cut.0, "after": self.cut.1});
                map.insert("leftOut".to_owned(), left_out);
            }
        }
        document
    }
}

/// Returns the JSON line of an entry. `path` is its displayed form.
pub(crate) fn entry_json(entry: &FindRow, path: &str) -> Value {
    let mut document = json!(FindRow { path: path.to_owned(), path_bytes: None, ..entry.clone() });
    if let Some(map) = document.as_object_mut() {
        map.insert("type".to_owned(), "entry".into());
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_come_with_their_context_in_the_order_of_lines() {
        let page = ResultPage::read(&json!({
            "matches": [
                {"path": "a", "line": 2, "column": 3, "text": "x", "submatches": [{"start": 0, "end": 1}],
                 "before": [{"line": 1, "text": "b"}], "after": [{"line": 3, "text": "c"}]},
                {"path": "a", "line": 9, "endLine": 11, "column": 1, "text": "y",
                 "submatches": [{"start": null, "end": 3}], "leftOut": {"before": 4, "after": 5}},
                {"path": "z", "line": 1, "column": 1, "text": "", "submatches": [], "binary": true},
            ],
            "shown": 2, "total": 7, "cursor": "c", "skipped": {"hidden": 3},
            "warnings": [{"path": "p", "message": "denied"}], "notes": ["n"], "timedOut": false,
        }))
        .unwrap();
        let lines: Vec<Value> = page.hits.iter().map(Hit::json).collect();
        assert_eq!(
            Value::from(lines),
            json!([
                {"type": "context", "path": "a", "line": 1, "text": "b"},
                {"type": "match", "path": "a", "line": 2, "column": 3, "text": "x",
                 "submatches": [{"start": 0, "end": 1}]},
                {"type": "context", "path": "a", "line": 3, "text": "c"},
                {"type": "match", "path": "a", "line": 9, "endLine": 11, "column": 1, "text": "y",
                 "submatches": [], "leftOut": {"before": 4, "after": 5}},
            ])
        );
        assert_eq!((page.shown, page.cursor.as_deref()), (2, Some("c")));
        assert_eq!(page.binaries, ["z"]);
        let warning =
            Warning { path: "p".to_owned(), message: "denied".to_owned(), path_bytes: None };
        assert_eq!((page.warnings, page.notes), (vec![warning], vec!["n".to_owned()]));
    }

    #[test]
    fn what_a_worker_leaves_out_or_gets_wrong_does_no_harm() {
        let page = ResultPage::read(&json!({})).unwrap();
        assert_eq!((page.shown, page.hits.len(), page.cursor), (0, 0, None));
        assert!(ResultPage::read(&json!({"matches": 3})).is_err());
        let odd = json!({"matches": [{"line": u64::MAX, "endLine": 0}, {"before": [{"line": u64::MAX}]}]});
        for hit in ResultPage::read(&odd).unwrap().hits {
            assert!(hit.line <= hit.end_line && hit.end_line <= MAX_NUMBER, "{hit:?}");
        }
    }

    #[test]
    fn names_counts_and_entries_are_read() {
        let page = ResultPage::read(&json!({
            "files": [{"path": "a\u{fffd}", "pathBytes": "Yf8="}], "counts": [{"path": "b", "count": 3}],
            "entries": [{"path": "c", "kind": "file", "size": 5, "mode": "0644"}], "unreadable": 2,
        }))
        .unwrap();
        let named: Vec<_> = page.names.iter().map(|it| (it.path.as_str(), it.count)).collect();
        assert_eq!(named, [("a\u{fffd}", None), ("b", Some(3))]);
        assert_eq!((page.n_changed_names, page.skipped["unreadable"]), (1, 2));
        assert_eq!(
            entry_json(&page.entries[0], "../c"),
            json!({"type": "entry", "path": "../c", "kind": "file", "size": 5, "mode": "0644"})
        );
    }
}
