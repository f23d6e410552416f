//! Data of `search` and `find`: the rows of the text with all numbers, in pages or as a stream. The worker writes it and
//! the command line reads it. A reader gives missing fields their defaults, because a worker may be faulty.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// One line of the stream `rows`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowsLine<'a> {
    /// Lines of one file, in order. A file with many lines has several of these.
    #[serde(borrow)]
    Lines(FileLines<'a>),
    /// A file, with a count if one was requested.
    File(FileRow),
    /// Entry of a directory.
    Entry(FindRow),
}

/// Lines of one file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FileLines<'a> {
    /// Path as text.
    #[serde(borrow)]
    pub path: Cow<'a, str>,
    /// Base64 of a path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// Whether the file is binary.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub binary: bool,
    /// The lines.
    #[serde(borrow)]
    pub rows: Vec<LineRow<'a>>,
}

/// A line, as an array: number, text, and two arrays that may be absent. There may be millions of lines, so they have no
/// names of fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LineRow<'a>(
    /// Line number, from 1.
    pub u64,
    /// Text without the last line end.
    #[serde(borrow)]
    pub Cow<'a, str>,
    /// Position of the first match in the line, in bytes from 1, then first and last byte + 1 of each match in the text.
    /// Empty for context.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub Vec<u64>,
    /// Number of the last line, bytes left out before the text, and after it. Absent for a whole line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub Option<(u64, u64, u64)>,
);

/// One page of a result. `search` has one of `matches`, `counts` and `files`; `find` has `entries`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SearchPage {
    /// Matching lines with their context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<Vec<Match>>,
    /// Files with their number of lines or matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<Vec<FileRow>>,
    /// Files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<FileRow>>,
    /// Entries of directories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<FindRow>>,
    /// Number of rows, without context.
    pub shown: u64,
    /// Number of rows of all pages.
    pub total: u64,
    /// Whether `total` is complete.
    pub total_exact: bool,
    /// Whether rows were left out.
    pub truncated: bool,
    /// Offset of the next page.
    pub next_offset: Option<u64>,
    /// Cursor of the next page.
    pub cursor: Option<String>,
    /// `search`: number of files read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_searched: Option<u64>,
    /// `search`: number of files with a match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_matched: Option<u64>,
    /// Number of skipped files by reason.
    pub skipped: BTreeMap<String, u64>,
    /// `find`: number of directories that could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<u64>,
    /// First paths that could not be read.
    pub warnings: Vec<Warning>,
    /// Whether time ran out, so that rows may be missing.
    pub timed_out: bool,
    /// Whether there were too many files, so that rows are missing.
    pub too_many_files: bool,
    /// Duration in milliseconds.
    pub elapsed_ms: u64,
    /// `search`: `rust` or `bre`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    /// `search`: whether matches could cross lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiline: Option<bool>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// A line with a match, or the lines of one match.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Match {
    /// Path as text.
    pub path: String,
    /// Base64 of a path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// Line number, from 1.
    pub line: u64,
    /// Number of the last line, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_line: Option<u64>,
    /// Position of the first match in the line, in bytes from 1.
    pub column: Option<u64>,
    /// Text without the last line end.
    pub text: String,
    /// Byte ranges of `text` that match.
    pub submatches: Vec<Span>,
    /// Number of further ranges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_submatches: Option<usize>,
    /// Bytes of the line that `text` leaves out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// Whether the file is binary.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub binary: bool,
    /// Lines before the match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<ContextLine>,
    /// Lines after the match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<ContextLine>,
}

/// A line near a match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextLine {
    /// Line number, from 1.
    pub line: u64,
    /// Text without the line end.
    pub text: String,
}

/// A range of bytes. Null for a position that is not in the text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Span {
    /// First byte.
    pub start: Option<usize>,
    /// Byte after the last one.
    pub end: Option<usize>,
}

/// Number of bytes that a cut line leaves out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftOut {
    /// Before the text.
    pub before: u64,
    /// After the text.
    pub after: u64,
}

/// A file, with a count if one was requested.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FileRow {
    /// Path as text.
    pub path: String,
    /// Base64 of a path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// Number of lines or matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// An entry of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FindRow {
    /// Path as text.
    pub path: String,
    /// Base64 of a path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// `file`, `dir` or `symlink`.
    pub kind: String,
    /// Size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// ISO 8601, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified: Option<String>,
    /// Octal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Score of a fuzzy search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<u64>,
}

/// A path that could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Warning {
    /// Path as text.
    pub path: String,
    /// Base64 of a path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// The reason.
    pub message: String,
}
