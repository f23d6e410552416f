//! Rows of `search` and `find`. They come from a worker and may be faulty: numbers are bounded.

use quackd_protocol::search::{FindRow, LineRow};
use serde::Serialize;
use serde_json::{Value, json};
use std::ops::Range;

/// Maximum line number. It leaves room for additions without overflow.
const MAX_NUMBER: u64 = 1 << 60;

/// Line, or the lines of one match.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Hit<'a> {
    /// Number of the line in the file, from 1.
    pub(crate) line: u64,
    /// Number of the last line.
    pub(crate) end_line: u64,
    /// Position of the first match in the line, in bytes from 1. `None` for context.
    pub(crate) column: Option<u64>,
    /// Text without the last line end.
    pub(crate) text: &'a str,
    /// First byte and last byte + 1 of each match in `text`. Not validated: they may lie outside of it.
    places: &'a [u64],
    /// Number of bytes of the line cut before and after `text`.
    pub(crate) cut: (u64, u64),
}

impl<'a> Hit<'a> {
    /// Reads a row of the reply. Numbers above a limit are replaced by it.
    pub(crate) fn of(LineRow(line, text, places, rest): &'a LineRow<'_>) -> Self {
        let line = (*line).min(MAX_NUMBER);
        let (end_line, before, after) = rest.unwrap_or((line, 0, 0));

        Self {
            line,
            end_line: end_line.clamp(line, MAX_NUMBER),
            column: places.as_slice().first().copied(),
            text,
            places: places.as_slice().get(1..).unwrap_or_default(),
            cut: (before, after),
        }
    }

    /// Returns the byte ranges of `text` that match.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Range<usize>> {
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        self.places.chunks_exact(2).filter_map(move |pair| match pair {
            [start, end] => Some(place(*start)..place(*end)),
            _ => None,
        })
    }

    /// Whether this is a match and not context.
    pub(crate) fn is_match(&self) -> bool {
        self.column.is_some()
    }

    /// Appends the JSON line of the hit.
    pub(crate) fn push_json(&self, path: &str, out: &mut String) {
        let left_out = || json!({"before": self.cut.0, "after": self.cut.1});
        push_json(
            &JsonHit {
                column: self.column,
                end_line: (self.end_line != self.line).then_some(self.end_line),
                left_out: (self.cut != (0, 0)).then(left_out),
                line: self.line,
                path,
                submatches: self.is_match().then(|| {
                    self.spans().map(|span| JsonSpan { end: span.end, start: span.start }).collect()
                }),
                text: self.text,
                kind: if self.is_match() { "match" } else { "context" },
            },
            out,
        );
    }
}

/// A hit as JSON, in the order of names that `Value` has.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonHit<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<Value>,
    line: u64,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    submatches: Option<Vec<JsonSpan>>,
    text: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
}

#[derive(Serialize)]
struct JsonSpan {
    end: usize,
    start: usize,
}

/// Appends a document as one line of JSON.
pub(crate) fn push_json(document: &impl Serialize, out: &mut String) {
    // The documents always have a JSON form.
    out.push_str(&serde_json::to_string(document).unwrap_or_default());
    out.push('\n');
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

    fn json_of(row: &Value) -> String {
        let text = row.to_string();
        let mut out = String::new();
        Hit::of(&serde_json::from_str(&text).unwrap()).push_json("a", &mut out);
        out
    }

    #[test]
    fn a_row_becomes_a_line_of_json() {
        for (row, expected) in [
            (json!([1, "b"]), json!({"type": "context", "path": "a", "line": 1, "text": "b"})),
            (
                json!([2, "x", [3, 0, 1]]),
                json!({"type": "match", "path": "a", "line": 2, "column": 3, "text": "x",
                     "submatches": [{"start": 0, "end": 1}]}),
            ),
            (
                json!([9, "y", [1], [11, 4, 5]]),
                json!({"type": "match", "path": "a", "line": 9, "endLine": 11, "column": 1, "text": "y",
                     "submatches": [], "leftOut": {"before": 4, "after": 5}}),
            ),
        ] {
            let line = json_of(&row);
            assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), expected);
        }
        // The order of names is that of all other documents.
        let line = json_of(&json!([9, "y", [1, 0, 1], [11, 4, 5]]));
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line, format!("{value}\n"));
    }

    #[test]
    fn numbers_that_are_wrong_do_no_harm() {
        for row in [
            json!([u64::MAX, ""]),
            json!([u64::MAX, "", [1], [0, 0, 0]]),
            json!([3, "", [1], [0, 9, 9]]),
        ] {
            let text = row.to_string();
            let row: LineRow<'_> = serde_json::from_str(&text).unwrap();
            let hit = Hit::of(&row);
            assert!(hit.line <= hit.end_line && hit.end_line <= MAX_NUMBER, "{hit:?}");
        }
    }

    #[test]
    fn an_entry_has_its_displayed_path() {
        let entry: FindRow =
            serde_json::from_value(json!({"path": "c", "kind": "file", "size": 5, "mode": "0644"}))
                .unwrap();
        assert_eq!(
            entry_json(&entry, "../c"),
            json!({"type": "entry", "path": "../c", "kind": "file", "size": 5, "mode": "0644"})
        );
    }
}
