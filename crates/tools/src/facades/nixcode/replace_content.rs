//! replace_content: replaces text line by line in the files that match a glob.

use super::{Failure, FileSelection, check_pattern, read_pattern};
use crate::arguments::Arguments;
use crate::call_limits::{CallLimits, StopCause};
use crate::replace::journal::{Applied, Backup, LeftReason, WriteOutcome};
use crate::replace::{
    PlanSource, ReplaceOutput, ReplaceParams, ReplaceToolError, bounded, data, expect, of_pattern,
    planning, run,
};
use crate::search_common::text::shown;
use crate::{Call, Output, Toolbox};
use quackd_protocol::limits::MAX_OUTPUT_BYTES;
use quackd_protocol::tools::{Checked, Counts, ReplaceContentArguments};
use quackd_sandbox::Root;
use quackd_search::replace::{DiffMode, Replace, ReplaceError, SkipReason};
use std::sync::Arc;

pub(crate) async fn replace_content(
    toolbox: &Toolbox,
    call: &Call,
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    if let Some(refused) = toolbox.refuse_change(call, "replace_content") {
        return refused;
    }
    let asked = match ReplaceContentParams::read(arguments) {
        Ok(asked) => asked,
        Err(failure) => return failure.output(),
    };
    if let Some(refused) = toolbox.confinement.refuse_read_only(&asked.files.glob) {
        return refused;
    }
    match asked.run(toolbox, call, root, bounds).await {
        Ok(done) => bounded(asked.output(&done, toolbox)),
        Err(ReplaceContentError::Because(failure)) => failure.output(),
        Err(ReplaceContentError::CutOff(cutoff)) => {
            Output::cut_off("replace_content", bounds, cutoff)
        }
    }
}

/// Parsed arguments. Errors of the last three come after those of the pattern.
struct ReplaceContentParams {
    pattern: String,
    replacement: String,
    files: FileSelection,
    max_files: Checked<usize>,
    is_dry_run: Checked<bool>,
    expect: Checked<Counts>,
}

/// Error answer of the tool.
enum ReplaceContentError {
    Because(Failure),
    CutOff(StopCause),
}

impl From<Failure> for ReplaceContentError {
    fn from(failure: Failure) -> Self {
        Self::Because(failure)
    }
}

impl From<ReplaceToolError> for ReplaceContentError {
    fn from(refused: ReplaceToolError) -> Self {
        match refused {
            ReplaceToolError::CutOff(cutoff) => Self::CutOff(cutoff),
            ReplaceToolError::Request(ReplaceError::Search(error)) => Self::Because(error.into()),
            ReplaceToolError::Parameter(error) => Self::Because(error.into()),
            other => Self::Because(Failure::Other(other.to_string())),
        }
    }
}

impl ReplaceContentParams {
    fn read(arguments: &Arguments) -> Result<Self, Failure> {
        let asked = ReplaceContentArguments::of(arguments.object());
        let (pattern, replacement) = (asked.pattern?, asked.replacement?);
        let files = FileSelection {
            glob: asked.glob_pattern?,
            directory: arguments.directory().clone(),
            is_with_ignored: asked.include_gitignored?,
            is_with_hidden: asked.include_hidden?,
        };
        if pattern.is_empty() {
            return Err(Failure::EmptyPattern);
        }
        let (max_files, is_dry_run, expect) = (asked.max_files, asked.dry_run, asked.expect);
        Ok(Self { pattern, replacement, files, max_files, is_dry_run, expect })
    }

    async fn run(
        &self,
        toolbox: &Toolbox,
        call: &Call,
        root: Arc<Root>,
        bounds: &CallLimits,
    ) -> Result<ReplaceOutput, ReplaceContentError> {
        let pattern = read_pattern(&self.pattern);
        let (checked, at) = (pattern.clone(), Arc::clone(&root));
        let check = bounds.run_blocking(move || check_pattern(&checked, &at));
        check.await.map_err(ReplaceContentError::CutOff)??;
        let (glob, mut scope) = self.files.scope()?;
        scope.include = vec![glob];
        let budget = planning(bounds, None);
        let request = Replace {
            scope,
            max_files: self.max_files.clone().map_err(Failure::from)?,
            ..of_pattern(pattern, self.replacement.clone(), budget)
        };
        let wanted = ReplaceParams {
            job: PlanSource::New(Box::new(request)),
            paths: vec![".".to_owned()],
            is_dry_run: self.is_dry_run.clone().map_err(Failure::from)?,
            expect: expect(self.expect.clone().map_err(Failure::from)?),
            backup: Backup::Journal,
            budget,
            show: DiffMode::None,
            max_bytes: MAX_OUTPUT_BYTES,
            directory: self.files.directory.clone(),
        };
        let done = run(toolbox, call, root, bounds, wanted).await?;
        // A partial list of files would be taken for a complete one.
        if done.plan.timed_out {
            return Err(ReplaceContentError::CutOff(StopCause::TimedOut));
        }
        Ok(done)
    }

    fn output(&self, done: &ReplaceOutput, toolbox: &Toolbox) -> Output {
        let seen = done.seen_from_directory();
        let written = seen.written();
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
        // If files were only unreadable, the answer is that nothing was found.
        let has_failed = done.applied.as_ref().is_some_and(|applied| n_failed(applied) != 0);
        if n_skipped != 0 && (!written.is_empty() || has_failed) {
            text.push_str(&format!(
                "\n\nSkipped {n_skipped} files due to permissions or read/write errors"
            ));
        }
        let denials = done.denials(&toolbox.confinement);
        if let Some(denial) = denials.first() {
            text.push('\n');
            let confinement = &toolbox.confinement;
            text.push_str(&confinement.explain(denial));
        }
        let mut output = Output::success(text);
        output.report.denials = denials;
        output.data = Some(data::of_replacement(&seen).into());
        output.wrote(done.applied.iter().flat_map(Applied::written))
    }
}

/// Number of skipped files that may have matches. Binary files do not count.
fn n_skipped(done: &ReplaceOutput) -> u64 {
    let skipped = &done.plan.skipped;
    let n_binary = skipped.iter().filter(|file| file.reason == SkipReason::Binary).count();
    let n_listed = skipped.len() - n_binary;
    // Binary files are listed last, so the unlisted files are binary, or the list is very long.
    let n_failed = done.applied.as_ref().map_or(0, n_failed);
    (n_listed as u64).saturating_add(n_failed).saturating_add(done.plan.counts.unreadable)
}

/// Number of planned files that were not written.
fn n_failed(applied: &Applied) -> u64 {
    let is_failed = |outcome: &WriteOutcome| matches!(outcome, WriteOutcome::Left(left) if !matches!(left, LeftReason::Already));
    applied.files.iter().filter(|file| is_failed(&file.outcome)).count() as u64
}
