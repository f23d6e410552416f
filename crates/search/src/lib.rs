//! Searches content, finds files and plans replacements: pure functions from a request and a tree to structured
//! results.
//!
//! Decides which files are searched, in which order and with which pattern, and where the result is cut. Called
//! by `crates/tools`, from a thread that may block.
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
mod cursor;
mod engine;
mod find;
mod glob;
pub mod replace;
mod walk;

#[cfg(feature = "fuzzing")]
pub mod fuzzing;

pub use error::SearchError;
pub use find::{EntryKind, Find, FindOutcome, FindSort, FoundEntry, Kinds, NameRule};
pub use glob::GlobError;
pub use note::Note;
pub use outcome::{
    Cut, FileHits, MAX_WARNINGS, Row, RowKind, SearchOutcome, Skipped, Total, Warning,
};
pub use request::{
    Binary, Boundary, Case, Dialect, Encoding, MAX_CONTEXT, MAX_ROWS, Multiline, OutputMode,
    Pattern, Search,
};
pub use scope::{GlobRule, Hidden, Ignore, Scope, Sort};
pub use tree::{Stop, Tree};

/// Searches the files of a request for lines that match.
///
/// The outcome depends only on the tree and the request, except for the elapsed time and a deadline that cuts
/// it.
///
/// # Errors
/// [`SearchError`] for a request that cannot be answered. A file that cannot be read, or is binary,
/// is skipped and counted instead.
pub fn search(request: &Search, tree: &dyn Tree) -> Result<SearchOutcome, SearchError> {
    engine::search(request, tree)
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
    find::run(request, tree)
}

#[cfg(test)]
mod tests;
