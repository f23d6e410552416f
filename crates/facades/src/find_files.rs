//! find_files: lists the files in the workspace that match a pattern, one per line.

use crate::grep_search::EXCLUDED_DIRS;
use quackd_protocol::tools::FindFilesArguments;
use quackd_sandbox::{Kind, PathError, Root};
use quackd_search::{Find, FindOutcome, Hidden, Ignore, Kinds, NameRule, Scope, SearchError};
use quackd_tools::search_common::RootTree;
use quackd_tools::search_common::text::{TOO_MANY_FILES, shown, timed_out, unreadable};
use quackd_tools::{Output, WorkspaceCall};
use serde_json::json;
use std::time::Duration;

/// Default pattern.
const EVERYTHING: &str = "**/*";

/// Maximum number of paths in one answer.
const MAX_PATHS: usize = 200;

pub(crate) async fn find_files(call: WorkspaceCall<'_>) -> Output {
    let arguments = FindFilesArguments::of(call.arguments());
    let directory = call.directory().clone();
    let pattern = arguments.pattern.unwrap_or_else(|| EVERYTHING.to_owned());
    let path =
        directory.path_of(arguments.path).unwrap_or_else(|| directory.path(".").into_owned());

    let request = Find {
        name: NameRule::Minimatch(pattern.clone()),
        kinds: Kinds { files: true, dirs: arguments.include_directories, symlinks: true },
        scope: Scope {
            // Entries of any type with such a name.
            exclude: EXCLUDED_DIRS.map(str::to_owned).into(),
            ignore: Ignore::None,
            hidden: if arguments.include_hidden { Hidden::Show } else { Hidden::Leave },
            vcs_dirs: true,
            ..Scope::default()
        },
        limit: MAX_PATHS,
        ..Find::new(call.stop())
    };

    let finding = call.search(move |root, stop| {
        let mut outcome = find_blocking(root, &path, Find { stop, ..request })?;
        directory.show_find(&mut outcome);
        Ok::<_, FindFailure>(outcome)
    });
    match finding.await {
        Ok(outcome) => answer(&outcome, &pattern, call.limit()),
        Err(error) => call.failed(&error),
    }
}

/// Error answer of the tool.
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
    Refused(SearchError),
}

fn find_blocking(root: &Root, path: &str, mut request: Find) -> Result<FindOutcome, FindFailure> {
    let not_found = || FindFailure::NotFound(path.to_owned());
    let start = root.metadata(path).map_err(|error| match error {
        PathError::Escapes => FindFailure::Escapes,
        PathError::NotFound => not_found(),
        other => FindFailure::Inaccessible(other),
    })?;
    if start.kind != Kind::Directory {
        return Err(FindFailure::NotADirectory(path.to_owned()));
    }

    request.scope.starts = vec![start.relative];
    quackd_search::find(&request, &RootTree(root)).map_err(|error| match error {
        SearchError::StartNotFound(_) => not_found(),
        refused => FindFailure::Refused(refused),
    })
}

fn answer(outcome: &FindOutcome, pattern: &str, limit: Duration) -> Output {
    let mut lines: Vec<String> = outcome.entries.iter().map(|entry| shown(&entry.path)).collect();
    if outcome.truncated {
        lines.push(format!("[Results truncated at {MAX_PATHS} entries]"));
    }
    if outcome.unreadable != 0 {
        lines.extend(unreadable(outcome.unreadable));
        for warning in &outcome.warnings {
            lines.push(format!("[Warning] {} ({})", warning.path.display(), warning.reason));
        }
    }
    if lines.is_empty() {
        lines.push(nothing(pattern));
    }
    if outcome.too_many_files {
        lines.push(TOO_MANY_FILES.to_owned());
    }
    if outcome.timed_out {
        lines.push(timed_out(limit));
    }

    let mut output = Output::success(lines.join("\n"));
    output.report.truncated = outcome.truncated;
    output.report.timed_out = outcome.timed_out;
    output.data = Some(
        json!({
            "files": outcome.shown,
            "truncated": outcome.truncated,
            "timedOut": outcome.timed_out,
            "unreadable": outcome.unreadable,
        })
        .into(),
    );
    output
}

/// Clients recognize both texts as successes by their first words.
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
    use quackd_search::{EntryKind, FoundEntry, Warning};

    fn text(found: &FindOutcome) -> String {
        answer(found, "*.x", Duration::from_secs(9)).text
    }

    fn entry(path: &str) -> FoundEntry {
        let kind = EntryKind::File;
        FoundEntry { path: path.into(), kind, size: None, modified: None, mode: None, score: None }
    }

    #[test]
    fn what_a_reader_must_know_follows_the_paths() {
        let warnings = vec![Warning { path: "a/b".into(), reason: "Permission denied".into() }];
        let denied = FindOutcome { unreadable: 7, warnings, ..FindOutcome::default() };
        let block = "[Warning: Skipped 7 unreadable path(s)]\n[Warning] a/b (Permission denied)";
        assert_eq!(text(&denied), block, "with warnings, nothing is not called nothing");
        let all = FindOutcome {
            entries: vec![entry("a"), entry("b")],
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
        let late = FindOutcome { timed_out: true, ..FindOutcome::default() };
        let expected = "No files found matching '*.x'\n\
                        [Search timed out after 9s; results are incomplete]";
        assert_eq!(text(&late), expected);
    }
}
