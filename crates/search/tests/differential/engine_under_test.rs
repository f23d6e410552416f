//! Queries the library over plain files. The only module that uses the library.

use crate::normalized_output::{Answer, Cell};
use crate::query::{self, Boundary, Case, Mode, Multiline, Query};
use crate::replace::Change;
use quackd_search::replace::{Digest, Editor, Replace, plan};
use quackd_search::{
    Binary, Encoding, FileHits, Find, Hidden, Ignore, NameRule, Note, OutputMode, Pattern, Row,
    RowKind, Scope, Search, SearchOutcome, Stop, Tree, find, search,
};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Plain files in a directory.
#[derive(Debug)]
pub(crate) struct Plain(PathBuf);

impl Plain {
    pub(crate) fn new(root: &Path) -> Self {
        Self(root.canonicalize().expect("the root is there"))
    }

    fn open(&self, relative: &Path, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
        OpenOptions::new().read(true).custom_flags(flags).open(self.0.join(relative))
    }
}

impl Tree for Plain {
    fn path(&self) -> &Path {
        &self.0
    }

    fn open_file(&self, relative: &Path) -> io::Result<File> {
        let file = self.open(relative, OFlags::empty())?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    fn open_directory(&self, relative: &Path) -> io::Result<File> {
        self.open(relative, OFlags::DIRECTORY)
    }
}

/// A path as bytes.
pub(crate) fn name(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// Long enough for every case on a busy machine.
pub(crate) fn stop() -> Stop {
    Stop::at(Instant::now() + Duration::from_secs(120))
}

/// A scope with everything, regardless of ignore files and names.
pub(crate) fn everything() -> Scope {
    Scope { ignore: Ignore::None, hidden: Hidden::Show, vcs_dirs: true, ..Scope::default() }
}

/// Converts the query's pattern for the library.
pub(crate) fn pattern(query: &Query) -> Pattern {
    Pattern {
        patterns: query.patterns.clone(),
        literal: query.fixed,
        boundary: match query.boundary {
            Boundary::None => quackd_search::Boundary::None,
            Boundary::Word => quackd_search::Boundary::Word,
            Boundary::Line => quackd_search::Boundary::Line,
        },
        dialect: if query.basic {
            quackd_search::Dialect::Basic
        } else {
            quackd_search::Dialect::Rust
        },
        retry_as_basic: false,
        case: match query.case {
            Case::Sensitive => quackd_search::Case::Sensitive,
            Case::Insensitive => quackd_search::Case::Insensitive,
            Case::Smart => quackd_search::Case::Smart,
        },
        multiline: match query.multiline {
            Multiline::Off => quackd_search::Multiline::Off,
            Multiline::On => quackd_search::Multiline::On { dot_all: false },
            Multiline::DotAll => quackd_search::Multiline::On { dot_all: true },
        },
    }
}

/// Converts the query to a request without limits.
pub(crate) fn request(query: &Query) -> Search {
    Search {
        scope: Scope {
            types: query.types.clone(),
            types_not: query.types_not.clone(),
            ..everything()
        },
        invert: query.invert,
        before: query.before,
        after: query.after,
        output: match query.mode {
            Mode::Lines => OutputMode::Lines,
            Mode::OnlyMatching => OutputMode::OnlyMatching,
            Mode::Files => OutputMode::Files,
            Mode::FilesWithout => OutputMode::FilesWithout,
            Mode::CountLines => OutputMode::CountLines,
            Mode::CountMatches => OutputMode::CountMatches,
        },
        max_per_file: query.max_per_file,
        max_bytes: 64 << 20,
        count_total: true,
        binary: if query.binary_too { Binary::Text } else { Binary::Skip },
        encoding: match query.encoding {
            query::Encoding::None => Encoding::None,
            query::Encoding::Auto => Encoding::Auto,
            query::Encoding::Label(label) => Encoding::Label(label.to_owned()),
        },
        ..Search::new(pattern(query), stop())
    }
}

/// Returns the library's answer, or an error if the answer contradicts itself.
pub(crate) fn answer(root: &Path, query: &Query) -> Result<Answer, String> {
    answer_to(root, query, &request(query))
}

/// As [`answer`], for a request that was changed.
pub(crate) fn answer_to(root: &Path, query: &Query, asked: &Search) -> Result<Answer, String> {
    let outcome = search(asked, &Plain::new(root)).map_err(|error| error.to_string())?;
    check(&outcome, query)?;
    let mut answer = Answer::new();
    for file in &outcome.files {
        let path = name(&file.path);
        let cells = match query.mode {
            Mode::Files | Mode::FilesWithout => Vec::new(),
            Mode::CountLines => vec![Cell::count(file.lines.to_string().as_bytes())],
            Mode::CountMatches => vec![Cell::count(file.matches.to_string().as_bytes())],
            Mode::Lines | Mode::OnlyMatching => {
                file.rows.iter().flat_map(|r| cells(r, query)).collect()
            }
        };
        let is_nothing = cells.is_empty() && query.mode == Mode::OnlyMatching;
        if !is_nothing && answer.insert(path, cells).is_some() {
            return Err(format!("{} occurs twice", file.path.display()));
        }
    }
    Ok(answer)
}

/// Splits a row across lines into one cell per line.
fn cells(row: &Row, query: &Query) -> Vec<Cell> {
    let is_match = row.kind == RowKind::Match;
    let column = if is_match && query.has_columns() { row.column } else { 0 };
    let n = usize::try_from(row.end_line - row.line).expect("a small file") + 1;
    let text = row.text.strip_suffix(b"\n").filter(|_| query.mode == Mode::OnlyMatching);
    let lines: Vec<&[u8]> = text.unwrap_or(&row.text).splitn(n, |byte| *byte == b'\n').collect();
    let numbers = row.line..;
    // For a match across lines, ripgrep prints each line that contains a part of the match.
    let is_split = query.mode == Mode::OnlyMatching && query.multiline != Multiline::Off;
    lines
        .into_iter()
        .zip(numbers)
        .filter(|(text, _)| !is_split || !text.is_empty())
        .map(|(text, line)| Cell { line, column, is_match, text: text.to_vec() })
        .collect()
}

/// Checks the invariants of every unlimited answer.
fn check(outcome: &SearchOutcome, query: &Query) -> Result<(), String> {
    let wrong = |what: String| Err(format!("the answer contradicts itself: {what}"));
    let paths: Vec<&[u8]> = outcome.files.iter().map(|f| f.path.as_os_str().as_bytes()).collect();
    if !paths.is_sorted() {
        return wrong("paths are not in byte order".into());
    }
    if outcome.truncated || outcome.next_offset.is_some() || outcome.cursor.is_some() {
        return wrong("it is cut without a limit".into());
    }
    if !outcome.total.is_exact || outcome.total.count != outcome.shown {
        return wrong(format!("{:?} with {} shown", outcome.total, outcome.shown));
    }
    let rows = outcome.files.iter().flat_map(|file| &file.rows);
    let n_rows = match query.mode {
        Mode::Lines | Mode::OnlyMatching => rows.filter(|row| row.kind == RowKind::Match).count(),
        _ => outcome.files.len(),
    };
    if u64::try_from(n_rows) != Ok(outcome.shown) {
        return wrong(format!("{n_rows} rows, {} shown", outcome.shown));
    }
    outcome.files.iter().try_for_each(|file| check_file(file, query))
}

fn check_file(file: &FileHits, query: &Query) -> Result<(), String> {
    let name = file.path.display();
    let mut end = 0;
    for row in &file.rows {
        let wrong =
            |what: &str| Err(format!("the answer contradicts itself: {name}: {what}: {row:?}"));
        let is_mode_of_lines = query.mode == Mode::Lines;
        if row.end_line < row.line || (is_mode_of_lines && row.line <= end) {
            return wrong("line numbers");
        }
        if is_mode_of_lines && 0 < end && row.after_gap != (end + 1 < row.line) {
            return wrong("gap");
        }
        if row.cut.is_some() {
            return wrong("cut");
        }
        if row.spans.iter().any(|span| span.end < span.start || row.text.len() < span.end) {
            return wrong("spans");
        }
        if row.kind == RowKind::Match && !query.invert {
            let first = row.spans.first().map(|span| span.start as u64);
            // Only in the mode for matches is the text before a match missing.
            let is_at = |first: u64| query.mode == Mode::OnlyMatching || first + 1 == row.column;
            if !first.is_some_and(is_at) {
                return wrong("column and first span");
            }
        }
        end = row.end_line;
    }
    Ok(())
}

/// Lists the regular files of a scope, sorted.
pub(crate) fn names(root: &Path, scope: &Scope) -> Result<Vec<Vec<u8>>, String> {
    let request = Find { scope: scope.clone(), name: NameRule::Everything, ..Find::new(stop()) };
    let outcome = find(&request, &Plain::new(root)).map_err(|error| error.to_string())?;
    let names: Vec<Vec<u8>> = outcome.entries.iter().map(|entry| name(&entry.path)).collect();
    if !names.is_sorted() {
        return Err(format!("not in byte order: {:?}", outcome.entries));
    }
    Ok(names)
}

/// Lists the regular files that a search of a scope reads, sorted.
pub(crate) fn searched(root: &Path, scope: &Scope) -> Result<Vec<Vec<u8>>, String> {
    let request = Search {
        scope: scope.clone(),
        output: OutputMode::FilesWithout,
        binary: Binary::Text,
        encoding: Encoding::None,
        max_bytes: 64 << 20,
        ..Search::new(Pattern::new("\u{1}\u{2}\u{3}"), stop())
    };
    let outcome = search(&request, &Plain::new(root)).map_err(|error| error.to_string())?;
    Ok(outcome.files.iter().map(|file| name(&file.path)).collect())
}

fn notes(root: &Path, scope: &Scope) -> Vec<Note> {
    let request = Find { scope: scope.clone(), ..Find::new(stop()) };
    find(&request, &Plain::new(root)).map(|outcome| outcome.notes).unwrap_or_default()
}

/// Whether the answer contains the note about an ignored start path.
pub(crate) fn says_ignored_start(root: &Path, scope: &Scope) -> bool {
    notes(root, scope).iter().any(|note| matches!(note, Note::IgnoredRootSearched { .. }))
}

/// Whether the answer contains the note about a glob that was retried at any depth.
pub(crate) fn says_glob_retried(root: &Path, scope: &Scope) -> bool {
    notes(root, scope).iter().any(|note| matches!(note, Note::GlobRetried { .. }))
}

/// Returns the new content of the only file of a tree. Planning and editing must agree on it.
pub(crate) fn replaced(root: &Path, change: &Change, old: &[u8]) -> Result<Vec<u8>, String> {
    let request = Replace {
        pattern: pattern(&change.query),
        template: !change.query.fixed,
        scope: everything(),
        skip_binary: false,
        raw_newlines: true,
        ..Replace::new("", change.template.clone(), stop())
    };
    let editor = Editor::new(&request).map_err(|error| error.to_string())?;
    let edited = editor.edit(old).map_err(|error| error.to_string())?;
    let plan = plan(&request, &Plain::new(root)).map_err(|error| error.to_string())?;
    let digests: Vec<_> = plan.files.iter().map(|file| (file.before, file.after)).collect();
    match edited {
        None if digests.is_empty() => Ok(old.to_vec()),
        Some(edited) if edited.new == old => {
            Err("contradicts itself: an edit changes nothing".to_owned())
        }
        Some(edited) if digests == [(Digest::of(old), Digest::of(&edited.new))] => Ok(edited.new),
        edited => {
            Err(format!("contradicts itself: the plan has {digests:?}, the edit is {edited:?}"))
        }
    }
}

/// Lists the regular files of a scope that contain an `x`, by planning a replacement of it, sorted.
pub(crate) fn planned(root: &Path, scope: &Scope) -> Result<Vec<Vec<u8>>, String> {
    let request = Replace { scope: scope.clone(), ..Replace::new("x", "y", stop()) };
    let plan = plan(&request, &Plain::new(root)).map_err(|error| error.to_string())?;
    Ok(plan.files.iter().map(|file| name(&file.path)).collect())
}
