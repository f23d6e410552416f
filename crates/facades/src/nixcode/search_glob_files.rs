//! search_glob_files: returns the files and directories that match a glob, 100 at a time.

use super::{Failure, FileSelection, PAGE, error_output, trailer};
use quackd_protocol::tools::SearchGlobFilesArguments;
use quackd_sandbox::Root;
use quackd_search::{Find, FindOutcome, Kinds, NameRule, Stop};
use quackd_tools::search_common::text::{ResultNotes, shown};
use quackd_tools::search_common::{RootTree, SearchToolError, data};
use quackd_tools::{Output, WorkspaceCall};
use std::time::Duration;

pub(crate) async fn search_glob_files(call: WorkspaceCall<'_>) -> Output {
    let (files, offset) = match read(&call) {
        Ok(params) => params,
        Err(failure) => return failed(&failure),
    };
    match call.search(move |root, stop| find_blocking(&files, offset, root, stop)).await {
        Ok(outcome) => answer(&outcome, offset, call.limit()),
        Err(SearchToolError::Because(failure)) => failed(&failure),
        Err(cut_off) => call.failed(&cut_off),
    }
}

fn read(call: &WorkspaceCall<'_>) -> Result<(FileSelection, u64), Failure> {
    let arguments = SearchGlobFilesArguments::of(call.arguments());
    let files = FileSelection {
        glob: arguments.pattern?,
        directory: call.directory().clone(),
        is_with_ignored: arguments.include_gitignored?,
        is_with_hidden: arguments.include_hidden?,
    };
    Ok((files, arguments.offset?))
}

/// Returns the failure with this tool's wording, which differs from the other two tools.
fn failed(failure: &Failure) -> Output {
    error_output(match failure {
        Failure::EmptyGlob => "Pattern is empty".to_owned(),
        Failure::AbsoluteGlob => "Pattern must be relative path".to_owned(),
        Failure::BadGlob(reason) => reason.clone(),
        other => other.to_string(),
    })
}

fn find_blocking(
    files: &FileSelection,
    offset: u64,
    root: &Root,
    stop: Stop,
) -> Result<FindOutcome, Failure> {
    let (glob, scope) = files.scope()?;
    let request = Find {
        name: NameRule::Globs(vec![glob]),
        kinds: Kinds { files: true, dirs: true, symlinks: true },
        scope,
        limit: PAGE,
        offset,
        ..Find::new(stop)
    };
    let mut outcome = quackd_search::find(&request, &RootTree(root))?;
    files.directory.show_find(&mut outcome);
    Ok(outcome)
}

fn answer(outcome: &FindOutcome, offset: u64, limit: Duration) -> Output {
    let mut text = String::new();
    if outcome.entries.is_empty() {
        text.push_str("No files found");
    } else {
        text.push_str("Glob results:\n");
        for entry in &outcome.entries {
            text.push_str(&shown(&entry.path));
            text.push('\n');
        }

        let total = outcome.total;
        let n_more = total.count.saturating_sub(offset + outcome.shown);
        let is_all = total.is_exact || !outcome.truncated;
        text.push_str(&trailer(n_more, is_all, "files", offset).unwrap_or_default());
    }

    for note in ResultNotes::of_find(outcome).only_warnings().lines(limit) {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&note);
    }

    let mut output = Output::success(text);
    output.report.truncated = outcome.truncated;
    output.report.timed_out = outcome.timed_out;
    output.data = Some(data::of_find(outcome));
    output
}
