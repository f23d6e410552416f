//! Content search and finding files: pure functions from a request and a tree to structured results.
//!
//! Owns: which files are looked at, in which order, by which pattern, and where the result is cut.
//! Called by: `crates/tools`, from a thread that may block.
//!
//! Knows nothing of answer texts, tools or sessions. It names files by walking, and opens them only
//! through the function that the caller gives; find also opens directories only in this way.

mod request;

mod basic;
mod find;
mod glob;
mod include;
mod pattern;
mod scan;
mod walk;

#[cfg(feature = "fuzzing")]
pub mod fuzzing;

pub use find::{FindError, FindRequest, Found, Warning, find};
pub use glob::GlobError;
pub use request::{Dialect, Outcome, Request, Row, SearchError, Skipped};

use crate::include::Include;
use crate::request::Stop;
use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a file or directory that a walk has named, relative to the root.
pub type Open<'a> = &'a (dyn Fn(&Path) -> io::Result<File> + Sync);

/// Searches the files beneath `root` for lines that match.
///
/// Every regular file is searched, hidden and ignored ones too, except below excluded directories;
/// symlinks are never followed. Rows come in the byte order of the whole relative path. The same
/// tree and request give the same rows, unless the deadline cuts them.
///
/// # Errors
/// [`SearchError`] for a request that cannot be answered. A file that cannot be read, or is binary,
/// is skipped and counted instead.
pub fn search(request: &Request, root: &Path, open: Open<'_>) -> Result<Outcome, SearchError> {
    let stop = Stop::until(request.deadline, &request.cancelled);
    let include = request.include.as_deref().map(|glob| Include::new(glob, &request.start));
    let include = include.transpose()?;
    let attempts = pattern::attempts(request)?;

    let walked = walk::files(request, root, include.as_ref(), &stop)?;
    let mut outcome = Outcome { dialect_used: request.dialect, ..Outcome::default() };
    for (dialect, matcher) in attempts {
        let scan = scan::scan(&walked.files, &matcher, request.max_bytes, &stop, open);
        // A second reading that found nothing either is not worth telling.
        let found_any = !scan.rows.is_empty();
        if found_any {
            outcome.dialect_used = dialect;
        }
        outcome.rows = scan.rows;
        outcome.truncated = scan.is_full;
        outcome.files_searched = scan.files_searched;
        outcome.skipped = scan.skipped;
        if found_any || stop.is_reached() {
            break;
        }
    }
    outcome.skipped.unreadable += walked.unreadable;
    outcome.too_many_files = walked.too_many_files;
    if stop.is_cancelled() {
        return Err(SearchError::Cancelled);
    }
    outcome.timed_out = stop.is_reached();
    Ok(outcome)
}

#[cfg(test)]
mod tests;
