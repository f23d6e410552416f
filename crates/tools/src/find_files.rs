//! find_files: names of files beneath the workspace that match a pattern, one a line.

use crate::Output;
use crate::arguments::Arguments;
use crate::bounds::{Bounds, CancelOnDrop, seconds};
use crate::grep_search::EXCLUDED_DIRS;
use quackd_sandbox::{Kind, PathError, Root};
use quackd_search::{FindError, FindRequest, Found};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const PATTERN: &[&str] = &["pattern", "glob"];
const PATH: &[&str] = &["path", "directory", "dir"];

/// What is looked for if the caller does not say.
const EVERYTHING: &str = "**/*";

/// Paths in one answer.
const MAX_PATHS: usize = 200;

pub(crate) async fn find_files(root: Arc<Root>, arguments: &Arguments, bounds: &Bounds) -> Output {
    let pattern = arguments.text(PATTERN).unwrap_or(EVERYTHING).to_owned();
    let path = arguments.text(PATH).unwrap_or(".").to_owned();
    let cancel = CancelOnDrop::default();
    let request = FindRequest {
        pattern: pattern.clone(),
        start: PathBuf::new(),
        include_hidden: arguments.is_true("include_hidden"),
        include_directories: arguments.is_true("include_directories"),
        exclude_names: EXCLUDED_DIRS.iter().map(|name| (*name).to_owned()).collect(),
        max_paths: MAX_PATHS,
        deadline: bounds.deadline,
        cancelled: cancel.flag(),
    };
    match bounds.run_blocking(move || find_blocking(&root, &path, request)).await {
        Ok(Ok(found)) => answer(&found, &pattern, bounds.limit),
        Ok(Err(failure)) => Output::error(failure),
        Err(cutoff) => Output::cut_off("find_files", bounds, cutoff),
    }
}

/// Why nothing was looked for, as the caller is told.
#[derive(Debug, thiserror::Error)]
enum FindFailure {
    #[error("Path escapes workspace root")]
    Escapes,
    #[error("Search path not found: '{0}'")]
    NotFound(String),
    #[error("Search path is not a directory: '{0}'")]
    NotADirectory(String),
    #[error("Failed to access search path: {0}")]
    Inaccessible(PathError),
    #[error("Invalid pattern: {0}")]
    Refused(FindError),
}

fn find_blocking(root: &Root, path: &str, mut request: FindRequest) -> Result<Found, FindFailure> {
    let not_found = || FindFailure::NotFound(path.to_owned());
    let start = root.metadata(path).map_err(|error| match error {
        PathError::Escapes => FindFailure::Escapes,
        PathError::NotFound => not_found(),
        other => FindFailure::Inaccessible(other),
    })?;
    if start.kind != Kind::Directory {
        return Err(FindFailure::NotADirectory(path.to_owned()));
    }
    request.start = start.relative;
    let open = |relative: &Path| root.open_directory(relative);
    quackd_search::find(&request, &open).map_err(|error| match error {
        FindError::StartNotFound => not_found(),
        refused => FindFailure::Refused(refused),
    })
}

fn answer(found: &Found, pattern: &str, limit: Duration) -> Output {
    let mut lines: Vec<String> =
        found.paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    if found.truncated {
        lines.push(format!("[Results truncated at {MAX_PATHS} entries]"));
    }
    if found.unreadable != 0 {
        lines.push(format!("[Warning: Skipped {} unreadable path(s)]", found.unreadable));
        let warnings = found.warnings.iter();
        lines.extend(
            warnings.map(|warning| {
                format!("[Warning] {} ({})", warning.path.display(), warning.reason)
            }),
        );
    }
    if lines.is_empty() {
        lines.push(nothing(pattern));
    }
    if found.too_many_files {
        lines.push("[Warning: Too many files, only some were searched]".to_owned());
    }
    if found.timed_out {
        let limit = seconds(limit);
        lines.push(format!("[Search timed out after {limit}; results are incomplete]"));
    }
    let mut output = Output::success(lines.join("\n"));
    output.report.truncated = found.truncated;
    output.report.timed_out = found.timed_out;
    output.data = Some(json!({
        "files": found.paths.len(),
        "truncated": found.truncated,
        "timedOut": found.timed_out,
        "unreadable": found.unreadable,
    }));
    output
}

/// Clients know both texts as successes by their first words.
fn nothing(pattern: &str) -> String {
    if pattern.trim() == EVERYTHING {
        "Workspace scan complete: no non-hidden files found. Try include_hidden=true to list dotfiles."
            .to_owned()
    } else {
        format!("No files found matching '{pattern}'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_search::Warning;

    fn text(found: &Found) -> String {
        answer(found, "*.x", Duration::from_secs(9)).text
    }

    #[test]
    fn what_a_reader_must_know_follows_the_paths() {
        let warnings = vec![Warning { path: "a/b".into(), reason: "Permission denied".into() }];
        let denied = Found { unreadable: 7, warnings, ..Found::default() };
        let block = "[Warning: Skipped 7 unreadable path(s)]\n[Warning] a/b (Permission denied)";
        assert_eq!(text(&denied), block, "with warnings, nothing is not called nothing");
        let all = Found {
            paths: vec!["a".into(), "b".into()],
            truncated: true,
            timed_out: true,
            too_many_files: true,
            ..denied
        };
        let expected = format!(
            "a\nb\n[Results truncated at 200 entries]\n{block}\n\
             [Warning: Too many files, only some were searched]\n\
             [Search timed out after 9s; results are incomplete]"
        );
        assert_eq!(text(&all), expected);
        let late = Found { timed_out: true, ..Found::default() };
        let expected = "No files found matching '*.x'\n\
                        [Search timed out after 9s; results are incomplete]";
        assert_eq!(text(&late), expected);
    }
}
