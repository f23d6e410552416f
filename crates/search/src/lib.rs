//! Searches content, finds files and plans replacements: pure functions from a request and a tree to structured
//! results.
//!
//! Decides which files are searched, in which order and with which pattern, and where the result is cut. Called
//! by `crates/tools` and `crates/facades`, from a thread that may block.
//!
//! Does not depend on answer texts, tools or sessions. Reads files only through the caller's [`Tree`], and
//! changes none.

mod request;
mod scope;
mod tree;

mod error;
mod note;
mod outcome;

mod pattern;
mod pattern_cost;
mod scan;

mod basic;
mod condvar;
mod crlf;
mod cursor;
mod engine;
mod find;
mod glob;
mod line_matcher;
mod platform;
pub mod replace;
mod walk;

#[cfg(feature = "fuzzing")]
pub mod fuzzing;

pub use crlf::CrlfMap;
pub use error::SearchError;
pub use find::{EntryKind, EntrySink, Find, FindOutcome, FindSort, FoundEntry, Kinds, NameRule};
pub use glob::GlobError;
pub use note::Note;
pub use outcome::{
    Cut, FileHits, MAX_WARNINGS, Row, RowKind, SearchOutcome, Skipped, Spans, Total, Warning,
};
pub use request::{
    Binary, Boundary, Case, Dialect, Encoding, MAX_CONTEXT, MAX_ROWS, Multiline, OutputMode,
    Pattern, Search,
};
pub use scan::RowSink;
pub use scope::{GlobRule, Hidden, Ignore, Scope, Sort};
pub use tree::{Stop, Tree};
pub use walk::set_user_excludes;

/// Searches the files of a request for lines that match.
///
/// The outcome depends only on the tree and the request, except for the elapsed time and a deadline that cuts
/// it.
///
/// # Errors
/// [`SearchError`] for a request that cannot be answered. A file that cannot be read, or is binary,
/// is skipped and counted instead.
pub fn search(request: &Search, tree: &dyn Tree) -> Result<SearchOutcome, SearchError> {
    engine::search(request, tree, None)
}

/// Searches like [`search`], in one pass and without the limits of a page, and passes the rows to `sink` in order while
/// it finds them. The limit of rows applies; 0 means no limit. [`Search::max_bytes`] limits each row.
///
/// The outcome has no rows. A sink that blocks makes the search wait; it must return when `request.stop` is reached. A
/// file of more than 256 KiB whose NUL byte follows many matches counts as binary, but may have passed some rows on.
///
/// # Errors
/// As [`search`].
pub fn search_to(
    request: &Search,
    tree: &dyn Tree,
    sink: &mut RowSink<'_>,
) -> Result<SearchOutcome, SearchError> {
    engine::search(request, tree, Some(sink))
}

/// Finds files, directories and symlinks by name.
///
/// The outcome depends only on the tree and the request, except for the elapsed time and a deadline that cuts
/// it.
///
/// # Errors
/// [`SearchError`] for a request that cannot be answered. A directory that cannot be read is a warning
/// instead.
pub fn find(request: &Find, tree: &dyn Tree) -> Result<FindOutcome, SearchError> {
    find::run(request, tree, None)
}

/// Finds like [`find`], without the limits of a page, and passes the entries to `sink` in order. The limit of entries
/// applies; 0 means no limit.
///
/// # Errors
/// As [`find`].
pub fn find_to(
    request: &Find,
    tree: &dyn Tree,
    sink: &mut EntrySink<'_>,
) -> Result<FindOutcome, SearchError> {
    find::run(request, tree, Some(sink))
}

#[cfg(test)]
mod test_files;
#[cfg(test)]
mod tests;
