//! Facts about one replacement, which `text` and `data` put into words and into structured data.

use crate::caller_dir::CallerDir;
use crate::replace::journal::{Applied, FileReport, LeftReason, WriteOutcome};
use quackd_search::replace::{FilePlan, ReplacePlan};
use std::borrow::Cow;
use std::sync::Arc;

/// Result of a replacement or of a dry run.
#[derive(Debug, Clone)]
pub struct ReplaceOutput {
    /// The planned and the skipped files.
    pub plan: Arc<ReplacePlan>,
    /// `None` for a dry run, or if the plan is incomplete.
    pub(crate) applied: Option<Applied>,
    /// Id with which a dry run can be applied.
    pub(crate) plan_id: Option<String>,
    /// Whether nothing was to be written.
    pub is_dry_run: bool,
    /// Directory of the caller.
    pub(crate) directory: CallerDir,
}

impl ReplaceOutput {
    /// Returns the facts with paths relative to the caller's directory, for the answer.
    pub(crate) fn seen_from_directory(&self) -> Cow<'_, Self> {
        if self.directory == CallerDir::default() {
            return Cow::Borrowed(self);
        }
        let mut seen = self.clone();
        let plan = Arc::make_mut(&mut seen.plan);
        self.directory.show_all(plan.files.iter_mut().map(|file| &mut file.path));
        self.directory.show_all(plan.skipped.iter_mut().map(|file| &mut file.path));
        let reports = seen.applied.iter_mut().flat_map(|applied| &mut applied.files);
        self.directory.show_all(reports.map(|report| &mut report.path));
        Cow::Owned(seen)
    }

    /// Returns the planned files that have their new content, or would have it after a dry run.
    #[must_use]
    pub fn written(&self) -> Vec<&FilePlan> {
        let Some(applied) = &self.applied else { return self.plan.files.iter().collect() };
        let is_written =
            |report: &FileReport| matches!(report.outcome, WriteOutcome::Written { .. });
        // The reports have the order of the plan.
        let both = self.plan.files.iter().zip(&applied.files);
        both.filter(|(_, report)| is_written(report)).map(|(file, _)| file).collect()
    }

    /// Returns the number of planned files that were not written and do not have the new content.
    #[must_use]
    pub fn n_failed(&self) -> u64 {
        let is_failed = |report: &&FileReport| matches!(&report.outcome, WriteOutcome::Left(left) if *left != LeftReason::Already);
        let reports = self.applied.iter().flat_map(|applied| &applied.files);
        reports.filter(is_failed).count() as u64
    }
}
