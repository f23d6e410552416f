//! replace_content: replaces text line by line in the files that match a glob.

use super::{Failure, FileSelection, check_pattern, read_pattern};
use quackd_protocol::tools::{Checked, Counts, ReplaceContentArguments};
use quackd_search::replace::{Replace, SkipReason};
use quackd_tools::search_common::SearchToolError;
use quackd_tools::search_common::text::shown;
use quackd_tools::{Output, ReplaceOutput, StopCause, WorkspaceCall};

pub(crate) async fn replace_content(call: WorkspaceCall<'_>) -> Output {
    if let Some(refused) = call.refuse_change() {
        return refused;
    }

    let params = match ReplaceContentParams::read(&call) {
        Ok(params) => params,
        Err(failure) => return failure.output(),
    };
    // After the arguments, because the refusal names the glob.
    if let Some(refused) = call.refuse_read_only(&params.files.glob) {
        return refused;
    }

    match params.run(&call).await {
        Ok(done) => call.replaced(&done, |done| params.text(done)),
        Err(SearchToolError::Because(failure)) => failure.output(),
        Err(cut_off) => call.failed(&cut_off),
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

impl ReplaceContentParams {
    fn read(call: &WorkspaceCall<'_>) -> Result<Self, Failure> {
        let arguments = ReplaceContentArguments::of(call.arguments());
        let (pattern, replacement) = (arguments.pattern?, arguments.replacement?);
        let files = FileSelection {
            glob: arguments.glob_pattern?,
            directory: call.directory().clone(),
            is_with_ignored: arguments.include_gitignored?,
            is_with_hidden: arguments.include_hidden?,
        };
        if pattern.is_empty() {
            return Err(Failure::EmptyPattern);
        }
        let (max_files, is_dry_run) = (arguments.max_files, arguments.dry_run);
        Ok(Self { pattern, replacement, files, max_files, is_dry_run, expect: arguments.expect })
    }

    async fn run(
        &self,
        call: &WorkspaceCall<'_>,
    ) -> Result<ReplaceOutput, SearchToolError<Failure>> {
        let pattern = read_pattern(&self.pattern);
        let checked = pattern.clone();
        call.search(move |root, _| check_pattern(&checked, root)).await?;

        let (glob, mut scope) = self.files.scope()?;
        scope.include = vec![glob];
        let request = Replace {
            pattern,
            scope,
            max_files: self.max_files.clone().map_err(Failure::from)?,
            ..Replace::new("", self.replacement.clone(), call.stop())
        };
        let is_dry_run = self.is_dry_run.clone().map_err(Failure::from)?;
        let counts = self.expect.clone().map_err(Failure::from)?;

        let done =
            call.replace(request, is_dry_run, counts).await.map_err(|error| match error {
                SearchToolError::Because(failure) => {
                    SearchToolError::Because(Failure::from(failure))
                }
                SearchToolError::CutOff(cause) => SearchToolError::CutOff(cause),
            })?;
        // A partial list of files would be taken for a complete one.
        if done.plan.timed_out {
            return Err(SearchToolError::CutOff(StopCause::TimedOut));
        }
        Ok(done)
    }

    /// Returns the answer text. The paths of `done` are relative to the caller's directory.
    fn text(&self, done: &ReplaceOutput) -> String {
        let written = done.written();
        let mut text = if written.is_empty() {
            "No matches found for replacement".to_owned()
        } else {
            let verb = if done.is_dry_run { "Would replace" } else { "Replaced" };
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

        let n_skipped = n_skipped(done);
        // If files were only unreadable, the answer is that nothing was found.
        if n_skipped != 0 && (!written.is_empty() || done.n_failed() != 0) {
            text.push_str(&format!(
                "\n\nSkipped {n_skipped} files due to permissions or read/write errors"
            ));
        }
        text
    }
}

/// Number of skipped files that may have matches. Binary files do not count.
fn n_skipped(done: &ReplaceOutput) -> u64 {
    let skipped = &done.plan.skipped;
    let n_binary = skipped.iter().filter(|file| file.reason == SkipReason::Binary).count();
    let n_listed = skipped.len() - n_binary;
    // Binary files are listed last, so the unlisted files are binary, or the list is very long.
    (n_listed as u64).saturating_add(done.n_failed()).saturating_add(done.plan.counts.unreadable)
}
