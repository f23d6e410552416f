//! Tests on small trees. `choice`: file selection; `lines`: matches; `pages`: pages and limits; `streams`: rows
//! without pages; `find`: names; `hostile`: hostile trees, files and patterns; `large`: large files.

#![expect(clippy::single_range_in_vec_init, reason = "one match is a list of one range")]

mod choice;
mod find;
mod hostile;
mod large;
mod lines;
mod pages;
mod streams;

use super::*;
pub(crate) use crate::test_files::{Files, open};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) fn stop() -> Stop {
    Stop::at(Instant::now() + Duration::from_secs(120))
}

/// Creates a search for lines without limits.
pub(crate) fn request(pattern: &str) -> Search {
    let mut request = Search::new(Pattern::new(pattern), stop());
    request.scope.ignore = Ignore::None;
    request.scope.hidden = Hidden::Show;
    request.max_bytes = 1_000_000;
    request
}

pub(crate) fn run(tree: &dyn Tree, request: &Search) -> SearchOutcome {
    search(request, tree).unwrap()
}

/// Formats rows as grep does: `path:line:text`, context with `-`, and `--` for a gap if there is context.
pub(crate) fn lines(outcome: &SearchOutcome) -> Vec<String> {
    let mut lines = Vec::new();
    let rows = outcome.files.iter().flat_map(|file| &file.rows);
    let has_context = rows.into_iter().any(|row| row.kind == RowKind::Context);
    for file in &outcome.files {
        for row in &file.rows {
            if row.after_gap && has_context {
                lines.push("--".to_owned());
            }
            let mark = if row.kind == RowKind::Match { ':' } else { '-' };
            let text = String::from_utf8_lossy(&row.text);
            lines.push(format!("{}{mark}{}{mark}{text}", file.path.display(), row.line));
        }
    }
    lines
}

pub(crate) fn found(tree: &dyn Tree, request: &Search) -> Vec<String> {
    lines(&run(tree, request))
}

/// Returns the paths of the files with a row.
pub(crate) fn names(tree: &dyn Tree, request: &Search) -> Vec<String> {
    let outcome = run(tree, request);
    outcome.files.iter().map(|file| file.path.display().to_string()).collect()
}
