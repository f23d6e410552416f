//! replace_content: replaces line by line in the files that a glob names.

use super::{Failure, Files, check_pattern, read_pattern, required};
use crate::arguments::Arguments;
use crate::bounds::{Bounds, Cutoff};
use crate::parameters::Parameters;
use crate::replace::{
    Done, Job, Refused, Wanted, bounded, data, expect, of_pattern, planning, refuse, run,
};
use crate::replacing::{Applied, Backup, Left, Outcome};
use crate::searching::text::shown;
use crate::{Call, Output, Toolbox};
use quackd_protocol::limits::MAX_OUTPUT_BYTES;
use quackd_sandbox::Root;
use quackd_search::replace::{DiffMode, Replace, ReplaceError, SkipReason};
use std::sync::Arc;

pub(crate) async fn replace_content(
    toolbox: &Toolbox,
    call: &Call,
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &Bounds,
) -> Output {
    if let Some(refused) = refuse(toolbox, call, "replace_content") {
        return refused;
    }
    let asked = match Asked::read(arguments) {
        Ok(asked) => asked,
        Err(failure) => return failure.output(),
    };
    if let Some(refused) = toolbox.confinement.refuse_read_only(&asked.files.glob) {
        return refused;
    }
    match asked.run(toolbox, root, arguments, bounds).await {
        Ok(done) => bounded(asked.output(&done, toolbox)),
        Err(Ended::Because(failure)) => failure.output(),
        Err(Ended::CutOff(cutoff)) => Output::cut_off("replace_content", bounds, cutoff),
    }
}

/// What a call asks.
struct Asked {
    pattern: String,
    replacement: String,
    files: Files,
}

/// Why there is no result.
enum Ended {
    Because(Failure),
    CutOff(Cutoff),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Because(failure)
    }
}

impl From<Refused> for Ended {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::CutOff(cutoff) => Self::CutOff(cutoff),
            Refused::Request(ReplaceError::Search(error)) => Self::Because(error.into()),
            Refused::Parameter(error) => Self::Because(error.into()),
            other => Self::Because(Failure::Other(other.to_string())),
        }
    }
}

impl Asked {
    fn read(arguments: &Arguments) -> Result<Self, Failure> {
        let parameters = Parameters::named("replace_content", arguments)?;
        let pattern = required(&parameters, "pattern")?;
        let replacement = required(&parameters, "replacement")?;
        let files = Files::read(&parameters, "glob_pattern")?;
        if pattern.is_empty() {
            return Err(Failure::EmptyPattern);
        }
        Ok(Self { pattern, replacement, files })
    }

    async fn run(
        &self,
        toolbox: &Toolbox,
        root: Arc<Root>,
        arguments: &Arguments,
        bounds: &Bounds,
    ) -> Result<Done, Ended> {
        let pattern = read_pattern(&self.pattern);
        let (checked, at) = (pattern.clone(), Arc::clone(&root));
        let check = bounds.run_blocking(move || check_pattern(&checked, &at));
        check.await.map_err(Ended::CutOff)??;
        let (glob, mut scope) = self.files.scope()?;
        scope.include = vec![glob];
        let parameters = Parameters::named("replace_content", arguments).map_err(Failure::from)?;
        let budget = planning(bounds, None);
        let request = Replace {
            scope,
            max_files: parameters.size("max_files").map_err(Failure::from)?.unwrap_or_default(),
            ..of_pattern(pattern, self.replacement.clone(), budget)
        };
        let wanted = Wanted {
            job: Job::New(Box::new(request)),
            paths: vec![".".to_owned()],
            is_dry_run: parameters.is_set("dry_run").map_err(Failure::from)?,
            expect: expect(&parameters).map_err(Failure::from)?,
            backup: Backup::Journal,
            budget,
            show: DiffMode::None,
            max_bytes: MAX_OUTPUT_BYTES,
        };
        let done = run(toolbox, root, bounds, wanted).await?;
        // A part of the files would be taken for all of them.
        if done.plan.timed_out {
            return Err(Ended::CutOff(Cutoff::TimedOut));
        }
        Ok(done)
    }

    fn output(&self, done: &Done, toolbox: &Toolbox) -> Output {
        let written = done.written();
        let n_skipped = n_skipped(done);
        let mut text = if written.is_empty() {
            "No matches found for replacement".to_owned()
        } else {
            let verb = if done.applied.is_some() { "Replaced" } else { "Would replace" };
            let n_lines: u64 = written.iter().map(|file| file.lines_changed).sum();
            let mut text = format!(
                "{verb} {n_lines} occurrences in {} files for pattern '{}' with '{}' in files matching '{}':\n\n",
                written.len(),
                self.pattern,
                self.replacement,
                self.files.glob,
            );
            for file in &written {
                let path = shown(&file.path);
                text.push_str(&format!("{path}: {} replacements\n", file.lines_changed));
            }
            text
        };
        // What only could not be read is no reason to say more than that nothing was found.
        let has_failed = done.applied.as_ref().is_some_and(|applied| n_failed(applied) != 0);
        if n_skipped != 0 && (!written.is_empty() || has_failed) {
            text.push_str(&format!(
                "\n\nSkipped {n_skipped} files due to permissions or read/write errors"
            ));
        }
        let denials = done.denials(&toolbox.confinement);
        if let Some(denial) = denials.first() {
            text.push('\n');
            text.push_str(&denial.explain(&toolbox.confinement.policy));
        }
        let mut output = Output::success(text);
        output.report.denials = denials;
        output.data = Some(data::of_replacement(done));
        output
    }
}

/// Files that were left as they are although they may have matches. Binary ones are none that anybody meant.
fn n_skipped(done: &Done) -> u64 {
    let skipped = &done.plan.skipped;
    let n_binary = skipped.iter().filter(|file| file.reason == SkipReason::Binary).count();
    let n_listed = skipped.len() - n_binary;
    // Binary files are listed last, so what is not listed is binary, or there are very many.
    let n_failed = done.applied.as_ref().map_or(0, n_failed);
    (n_listed as u64).saturating_add(n_failed).saturating_add(done.plan.counts.unreadable)
}

/// Planned files that were not written.
fn n_failed(applied: &Applied) -> u64 {
    let is_failed = |outcome: &Outcome| matches!(outcome, Outcome::Left(left) if !matches!(left, Left::Already));
    applied.files.iter().filter(|file| is_failed(&file.outcome)).count() as u64
}
