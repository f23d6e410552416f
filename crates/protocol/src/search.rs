//! Data of `search` and `find`: the rows of the text with all numbers, in pages or as a stream. The worker writes it and
//! the command line reads it. A reader gives missing fields their defaults, because a worker may be faulty.

use serde::de::{SeqAccess, Visitor};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;

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
    #[serde(default, skip_serializing_if = "Places::is_empty")]
    pub Places,
    /// Number of the last line, bytes left out before the text, and after it. Absent for a whole line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub Option<(u64, u64, u64)>,
);

/// Positions in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places(PlaceList);

/// Most lines have three positions. They need no allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PlaceList {
    Three([u64; 3]),
    Any(Vec<u64>),
}

impl Places {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Returns the positions.
    #[must_use]
    pub fn as_slice(&self) -> &[u64] {
        match &self.0 {
            PlaceList::Three(three) => three,
            PlaceList::Any(any) => any,
        }
    }

    fn read<E>(mut next: impl FnMut() -> Result<Option<u64>, E>) -> Result<Self, E> {
        let mut three = [0; 3];
        for n in 0..three.len() {
            match (next()?, three.get_mut(n)) {
                (Some(place), Some(free)) => *free = place,
                _ => return Ok(Self(PlaceList::Any(three.into_iter().take(n).collect()))),
            }
        }

        let Some(fourth) = next()? else { return Ok(Self(PlaceList::Three(three))) };
        let mut any: Vec<u64> = three.into_iter().chain([fourth]).collect();
        while let Some(place) = next()? {
            any.push(place);
        }
        Ok(Self(PlaceList::Any(any)))
    }
}

impl Default for Places {
    fn default() -> Self {
        Self(PlaceList::Any(Vec::new()))
    }
}

impl FromIterator<u64> for Places {
    fn from_iter<I: IntoIterator<Item = u64>>(places: I) -> Self {
        let mut places = places.into_iter();
        let Ok(read) = Self::read(|| Ok::<_, Infallible>(places.next()));
        read
    }
}

impl Serialize for Places {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.as_slice().serialize(to)
    }
}

impl<'de> Deserialize<'de> for Places {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(PlacesVisitor)
    }
}

struct PlacesVisitor;

impl<'de> Visitor<'de> for PlacesVisitor {
    type Value = Places;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of positions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Places, A::Error> {
        Places::read(|| seq.next_element())
    }
}

/// One page of a result. `search` has one of `matches`, `counts` and `files`; `find` has `entries`.
///
/// The fields of a page and of its parts are sorted by name, as are the keys of every other tool's data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SearchPage<'a> {
    /// Files with their number of lines or matches.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "sorted")]
    pub counts: Option<Vec<FileRow>>,
    /// Cursor of the next page.
    pub cursor: Option<String>,
    /// `search`: `rust` or `bre`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    /// Duration in milliseconds.
    pub elapsed_ms: u64,
    /// Entries of directories.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "sorted")]
    pub entries: Option<Vec<FindRow>>,
    /// Files only.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "sorted")]
    pub files: Option<Vec<FileRow>>,
    /// `search`: number of files with a match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_matched: Option<u64>,
    /// `search`: number of files read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_searched: Option<u64>,
    /// Matching lines with their context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<Vec<Match<'a>>>,
    /// `search`: whether matches could cross lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiline: Option<bool>,
    /// Offset of the next page.
    pub next_offset: Option<u64>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Number of rows, without context.
    pub shown: u64,
    /// Number of skipped files by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Whether time ran out, so that rows may be missing.
    pub timed_out: bool,
    /// Whether there were too many files, so that rows are missing.
    pub too_many_files: bool,
    /// Number of rows of all pages.
    pub total: u64,
    /// Whether `total` is complete.
    pub total_exact: bool,
    /// Whether rows were left out.
    pub truncated: bool,
    /// `find`: number of directories that could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<u64>,
    /// First paths that could not be read.
    pub warnings: Vec<Warning>,
    /// First files of which a part was not searched, or nothing, because of their size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<Warning>,
}

/// Writes rows with sorted keys. The keys of the same rows in a stream are not sorted.
fn sorted<T: Serialize, S: Serializer>(rows: &T, to: S) -> Result<S::Ok, S::Error> {
    serde_json::to_value(rows).map_err(S::Error::custom)?.serialize(to)
}

/// A line with a match, or the lines of one match.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Match<'a> {
    /// Lines after the match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<ContextLine<'a>>,
    /// Lines before the match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<ContextLine<'a>>,
    /// Whether the file is binary.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub binary: bool,
    /// Position of the first match in the line, in bytes from 1.
    pub column: Option<u64>,
    /// Number of the last line, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_line: Option<u64>,
    /// Bytes of the line that `text` leaves out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// Line number, from 1.
    pub line: u64,
    /// Number of further ranges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_submatches: Option<usize>,
    /// Path as text.
    pub path: Cow<'a, str>,
    /// Base64 of a path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<Cow<'a, str>>,
    /// Byte ranges of `text` that match.
    pub submatches: Vec<Span>,
    /// Text without the last line end.
    pub text: Cow<'a, str>,
}

/// A line near a match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextLine<'a> {
    /// Line number, from 1.
    pub line: u64,
    /// Text without the line end.
    pub text: Cow<'a, str>,
}

/// A range of bytes. Null for a position that is not in the text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Span {
    /// Byte after the last one.
    pub end: Option<usize>,
    /// First byte.
    pub start: Option<usize>,
}

/// Number of bytes that a cut line leaves out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftOut {
    /// After the text.
    pub after: u64,
    /// Before the text.
    pub before: u64,
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
    /// The reason.
    pub message: String,
    /// Path as text.
    pub path: String,
    /// Base64 of a path that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page with every field.
    fn page() -> SearchPage<'static> {
        let line = |text: &'static str| ContextLine { line: 1, text: text.into() };
        let file = FileRow { path: "f".into(), path_bytes: Some("Zg==".into()), count: Some(1) };
        let text = |text: &str| Some(text.to_owned());
        SearchPage {
            counts: Some(vec![file.clone()]),
            cursor: text("c"),
            dialect: text("rust"),
            entries: Some(vec![FindRow {
                path: "e".into(),
                path_bytes: text("ZQ=="),
                kind: "file".into(),
                size: Some(1),
                modified: text("1970-01-02T00:00:00Z"),
                mode: text("0644"),
                score: Some(2),
            }]),
            files: Some(vec![file]),
            files_matched: Some(1),
            files_searched: Some(2),
            matches: Some(vec![Match {
                after: vec![line("after")],
                before: vec![line("before")],
                binary: true,
                column: Some(3),
                end_line: Some(4),
                left_out: Some(LeftOut { before: 5, after: 6 }),
                line: 3,
                more_submatches: Some(7),
                path: "m".into(),
                path_bytes: Some("bQ==".into()),
                submatches: vec![Span { start: Some(1), end: None }],
                text: "line".into(),
            }]),
            multiline: Some(false),
            next_offset: Some(8),
            notes: vec!["note".into()],
            skipped: [("binary".to_owned(), 9)].into(),
            unreadable: Some(10),
            warnings: vec![Warning {
                message: "denied".into(),
                path: "w".into(),
                path_bytes: text("dw=="),
            }],
            ..SearchPage::default()
        }
    }

    #[test]
    fn positions_are_the_same_whatever_their_number() {
        for n in 0..9 {
            let list: Vec<u64> = (1..=n).collect();
            let places: Places = list.iter().copied().collect();
            let text = serde_json::to_string(&list).unwrap();
            assert_eq!((places.as_slice(), places.is_empty()), (&*list, n == 0));
            assert_eq!(serde_json::to_string(&places).unwrap(), text);
            assert_eq!(serde_json::from_str::<Places>(&text).unwrap(), places);
        }
        assert!(serde_json::from_str::<Places>("[1,2,\"x\"]").is_err());
    }

    #[test]
    fn the_keys_of_a_page_are_sorted_and_every_field_is_read_again() {
        let page = page();
        let text = serde_json::to_string(&page).unwrap();
        let value = serde_json::to_value(&page).unwrap();
        assert_eq!(text, value.to_string());
        assert_eq!(serde_json::from_str::<SearchPage<'_>>(&text).unwrap(), page);
        assert_eq!(SearchPage::deserialize(&value).unwrap(), page);
    }
}
