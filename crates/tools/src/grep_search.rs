//! grep_search: matching lines beneath the workspace, as `path:line:text`.

use crate::arguments::Arguments;
use crate::bounds::{Bounds, CancelOnDrop, seconds};
use crate::truncate::{self, TRUNCATED};
use crate::{Output, Toolbox};
use quackd_protocol::limits::MAX_OUTPUT_BYTES;
use quackd_sandbox::{Kind, PathError, Root};
use quackd_search::{Dialect, Outcome, Request, Row, SearchError};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const PATTERN: &[&str] = &["pattern", "query", "regex"];
const PATH: &[&str] = &["path", "directory", "dir"];

/// Directories that a search does not enter unless it begins there.
pub(crate) const EXCLUDED_DIRS: &[&str] = &[".git", ".build", "node_modules"];

const NO_MATCHES: &str = "No matches found";

pub(crate) async fn grep_search(
    toolbox: &Toolbox,
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &Bounds,
) -> Output {
    let Some(pattern) = arguments.text(PATTERN) else {
        return Output::error("Missing required parameter 'pattern'");
    };
    let path = arguments.text(PATH).unwrap_or(".").to_owned();
    // Also when this future is dropped: nobody waits for the search any more.
    let cancel = CancelOnDrop::default();
    let request = Request {
        pattern: pattern.to_owned(),
        dialect: Dialect::Rust,
        retry_as_basic: true,
        start: PathBuf::new(),
        // Empty is a glob too: it matches no file.
        include: arguments.any_text("include").map(str::to_owned),
        exclude_dirs: EXCLUDED_DIRS.iter().map(|name| (*name).to_owned()).collect(),
        respect_ignore_files: toolbox.respect_ignore_files,
        max_bytes: MAX_OUTPUT_BYTES,
        deadline: bounds.deadline,
        cancelled: cancel.flag(),
    };
    let searched = bounds.run_blocking(move || search_blocking(&root, &path, request)).await;
    match searched {
        Ok(Ok(outcome)) => answer(&outcome, bounds.limit),
        Ok(Err(error)) => Output::error(error),
        Err(cutoff) => Output::cut_off("grep_search", bounds, cutoff),
    }
}

/// Why nothing was searched, as the caller is told: in the words of grep.
#[derive(Debug, thiserror::Error)]
enum GrepError {
    #[error("Path escapes workspace root")]
    Escapes,
    #[error("grep failed with exit code 2: grep: {0}: No such file or directory")]
    NotFound(String),
    #[error("grep failed with exit code 2: grep: {path}: {reason}")]
    BadPath { path: String, reason: String },
    #[error("grep failed with exit code 2: {0}")]
    BadRequest(SearchError),
}

fn search_blocking(root: &Root, path: &str, mut request: Request) -> Result<Outcome, GrepError> {
    let start = root.metadata(path).map_err(|error| name(error, path))?;
    if !matches!(start.kind, Kind::File | Kind::Directory) {
        let reason = PathError::NotRegular { kind: start.kind }.to_string();
        return Err(GrepError::BadPath { path: path.to_owned(), reason });
    }
    request.start = start.relative;
    let open = |relative: &Path| root.open_relative(relative);
    quackd_search::search(&request, root.path(), &open).map_err(|error| match error {
        SearchError::StartNotFound => GrepError::NotFound(path.to_owned()),
        other => GrepError::BadRequest(other),
    })
}

fn name(error: PathError, path: &str) -> GrepError {
    match error {
        PathError::Escapes => GrepError::Escapes,
        PathError::NotFound => GrepError::NotFound(path.to_owned()),
        other => GrepError::BadPath { path: path.to_owned(), reason: other.to_string() },
    }
}

fn answer(outcome: &Outcome, limit: Duration) -> Output {
    let (mut text, is_cut) = render(&outcome.rows);
    let truncated = outcome.truncated || is_cut;
    let notes = notes(outcome, truncated, limit);
    if text.is_empty() {
        NO_MATCHES.clone_into(&mut text);
    }
    if !notes.is_empty() {
        // A note is a line of its own: the newline of the last row is the one before it.
        text.truncate(text.strip_suffix('\n').unwrap_or(&text).len());
        for note in notes {
            text.push('\n');
            text.push_str(&note);
        }
    }
    let mut output = Output::success(text);
    output.report.truncated = truncated;
    output.report.timed_out = outcome.timed_out;
    output.data = Some(data(outcome, truncated));
    output
}

/// Rows up to the limit of what is shown, whole ones only; a first row that is too long for it is cut.
fn render(rows: &[Row]) -> (String, bool) {
    let mut text = String::new();
    for row in rows {
        let begin = text.len();
        let line = String::from_utf8_lossy(&row.text);
        text.push_str(&format!("{}:{}:{line}\n", row.path.display(), row.line));
        if MAX_OUTPUT_BYTES < text.len() {
            if begin == 0 {
                text = truncate::head(text.as_bytes(), MAX_OUTPUT_BYTES).text;
            } else {
                text.truncate(begin);
            }
            return (text, true);
        }
    }
    (text, false)
}

/// What a reader must know to judge the rows: an empty or short result that does not say why is worse
/// than an error.
fn notes(outcome: &Outcome, truncated: bool, limit: Duration) -> Vec<String> {
    let mut notes = Vec::new();
    if truncated {
        notes.push(TRUNCATED.to_owned());
    }
    if outcome.dialect_used == Dialect::Basic {
        notes.push(
            "[Note: read as a basic regular expression, because the pattern matches nothing in Rust syntax]"
                .to_owned(),
        );
    }
    if outcome.too_many_files {
        notes.push("[Warning: Too many files, only some were searched]".to_owned());
    }
    let n_unreadable = outcome.skipped.unreadable + outcome.skipped.too_long;
    if n_unreadable != 0 {
        notes.push(format!("[Warning: Skipped {n_unreadable} unreadable path(s)]"));
    }
    if outcome.timed_out {
        let limit = seconds(limit);
        notes.push(format!("[Search timed out after {limit}; results are incomplete]"));
    }
    notes
}

fn data(outcome: &Outcome, truncated: bool) -> serde_json::Value {
    json!({
        "matches": outcome.rows.len(),
        "truncated": truncated,
        "timedOut": outcome.timed_out,
        "filesSearched": outcome.files_searched,
        "skipped": {
            "binary": outcome.skipped.binary,
            "unreadable": outcome.skipped.unreadable,
            "tooLong": outcome.skipped.too_long,
        },
        "dialect": match outcome.dialect_used {
            Dialect::Rust => "rust",
            Dialect::Basic => "basic",
        },
    })
}
