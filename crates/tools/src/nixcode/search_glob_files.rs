//! search_glob_files: files and directories that a glob names, a hundred at a time.

use super::{Failure, Files, PAGE, trailer};
use crate::Output;
use crate::arguments::Arguments;
use crate::bounds::Bounds;
use crate::parameters::Parameters;
use crate::searching::text::{Closing, shown};
use crate::searching::{Budget, Refusal, RootTree, data, run};
use quackd_sandbox::Root;
use quackd_search::{Find, FindOutcome, Kinds, NameRule, Stop};
use std::sync::Arc;
use std::time::Duration;

pub(crate) async fn search_glob_files(
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &Bounds,
) -> Output {
    let (files, offset) = match read(arguments) {
        Ok(wanted) => wanted,
        Err(failure) => return reworded(&failure).output(),
    };
    let found = run("search_glob_files", root, bounds, Budget::of(bounds), move |root, stop| {
        find_blocking(&files, offset, root, stop)
    });
    match found.await {
        Ok(outcome) => answer(&outcome, offset, bounds.limit),
        Err(Refusal::Because(failure)) => reworded(&failure).output(),
        Err(refusal) => refusal.output(bounds),
    }
}

fn read(arguments: &Arguments) -> Result<(Files, u64), Failure> {
    let parameters = Parameters::named("search_glob_files", arguments)?;
    let files = Files::read(&parameters, "pattern")?;
    Ok((files, parameters.whole("offset")?.unwrap_or_default()))
}

/// This tool has other words for the same than its two siblings.
#[derive(Debug, thiserror::Error)]
enum Reworded<'a> {
    #[error("Pattern is empty")]
    Empty,
    #[error("Pattern must be relative path")]
    Absolute,
    #[error("{0}")]
    Syntax(&'a str),
    #[error("{0}")]
    Same(&'a Failure),
}

fn reworded(failure: &Failure) -> Reworded<'_> {
    match failure {
        Failure::EmptyGlob => Reworded::Empty,
        Failure::AbsoluteGlob => Reworded::Absolute,
        Failure::BadGlob(reason) => Reworded::Syntax(reason),
        other => Reworded::Same(other),
    }
}

impl Reworded<'_> {
    fn output(&self) -> Output {
        let mut output = Output::success(self.to_string());
        output.report.is_error = true;
        output
    }
}

fn find_blocking(
    files: &Files,
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
    Ok(quackd_search::find(&request, &RootTree(root))?)
}

fn answer(outcome: &FindOutcome, offset: u64, limit: Duration) -> Output {
    let closing = Closing { truncated: false, notes: &[], ..Closing::of_find(outcome) };
    let notes = closing.lines(limit);
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
    for note in notes {
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
