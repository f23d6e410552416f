//! Results of replacements as text for a model.

use super::data;
use super::output::ReplaceOutput;
use crate::call_limits::seconds;
use crate::replace::journal::{
    Applied, EarlyStop, FileReport, InterruptedReplace, LeftReason, WriteOutcome, detached,
};
use crate::search_common::Budget;
use crate::search_common::text::{shown, timed_out, unreadable};
use crate::{Confinement, Output};
use quackd_protocol::denial::{Denial, DenialKind};
use quackd_protocol::worker::MAX_LISTED;
use quackd_search::replace::{DiffMode, FilePlan, SkipReason, SkippedFile};
use std::path::PathBuf;

/// Maximum number of skipped or unchanged files that are named.
const MAX_NAMED: usize = 5;

impl ReplaceOutput {
    /// Returns the answer of `replace`.
    pub(crate) fn output(
        &self,
        show: DiffMode,
        max_bytes: usize,
        budget: Budget,
        confinement: &Confinement,
    ) -> Output {
        let seen = self.seen_from_directory();
        let mut lines = Lines { text: String::new(), max_bytes, n_left_out: 0 };
        let written = seen.written();
        let is_late = !self.is_dry_run && self.applied.is_none();
        let is_unwritten =
            written.is_empty() && self.applied.is_some() && !self.plan.files.is_empty();

        if is_late {
            let limit = seconds(budget.limit);
            lines.push(&format!("Error: replace timed out after {limit}; nothing was changed"));
        } else if is_unwritten {
            lines.push("Error: None of the planned files could be changed");
        } else {
            lines.push(&seen.headline(&written));
            lines.files(&written, show);
        }

        let notes = seen.notes(budget);
        let is_cut = lines.n_left_out != 0;
        let mut text = lines.ended();
        for line in notes {
            text.push('\n');
            text.push_str(&line);
        }

        let mut output = self.answer(&seen, text, confinement);
        output.report.is_error = is_late || is_unwritten;
        output.report.timed_out = self.plan.timed_out;
        output.report.truncated = is_cut || (self.plan.diffs_cut && show == DiffMode::Unified);
        output
    }

    /// Returns an answer with this text, the first denial, the data and the written files. `seen` has the paths of the
    /// data.
    pub(crate) fn answer(
        &self,
        seen: &Self,
        mut text: String,
        confinement: &Confinement,
    ) -> Output {
        let denials =
            self.applied.as_ref().map_or_else(Vec::new, |it| denials(&it.files, confinement));
        if let Some(denial) = denials.first() {
            text.push('\n');
            text.push_str(&confinement.explain(denial));
        }
        let mut output = Output::success(text);
        output.report.denials = denials;
        output.data = Some(data::of_replacement(seen).into());
        output.wrote(self.applied.iter().flat_map(Applied::written))
    }

    fn headline(&self, written: &[&FilePlan]) -> String {
        if self.plan.files.is_empty() {
            return "No matches to replace".to_owned();
        }
        let verb = if self.applied.is_some() { "Replaced" } else { "Would replace" };
        let replacements: u64 = written.iter().map(|file| file.replacements).sum();
        let lines: u64 = written.iter().map(|file| file.lines_changed).sum();
        format!(
            "{verb} {} in {} of {}",
            counted(replacements, "match", "matches"),
            counted(lines, "line", "lines"),
            counted(written.len() as u64, "file", "files"),
        )
    }

    /// Returns the notes that explain the numbers.
    fn notes(&self, budget: Budget) -> Vec<String> {
        let plan = &*self.plan;
        let mut lines: Vec<String> =
            plan.notes.iter().map(|note| format!("[Note: {note}]")).collect();

        if let Some(applied) = &self.applied {
            lines.extend(left(&applied.files, "Not changed"));
            lines.extend(closing(applied));
        }

        lines.extend(skipped(&plan.skipped, plan.skipped_count));
        lines.extend(unreadable(plan.counts.unreadable));
        if plan.diffs_cut {
            lines.push("[Diffs are cut; ask for fewer files or for diff \"stat\"]".to_owned());
        }
        if plan.timed_out && self.is_dry_run {
            lines.push(timed_out(budget.limit));
        }

        if let Some(id) = &self.plan_id {
            lines.push(format!(
                "[Nothing was changed; to make exactly these changes: replace with plan_id {id}]"
            ));
        } else if self.is_dry_run {
            lines.push("[Nothing was changed]".to_owned());
        }

        if let Some(id) = self.applied.as_ref().and_then(|applied| applied.undo_id.as_ref()) {
            lines.push(format!("[To take it back: undo with undo_id {id}]"));
        }

        lines
    }
}

/// Formats a count: `1 file`, `2 files`.
pub(crate) fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Returns the denials and the policy's reasons.
pub(crate) fn denials(files: &[FileReport], confinement: &Confinement) -> Vec<Denial> {
    let of = |report: &FileReport| match &report.outcome {
        WriteOutcome::Left(LeftReason::Protected(_)) => {
            Some(Denial::new(DenialKind::Protected, Some(&shown(&report.path)), false))
        }
        WriteOutcome::Left(LeftReason::Failed { denial, .. }) if confinement.is_enforced() => {
            denial.clone()
        }
        _ => None,
    };
    files.iter().filter_map(of).take(MAX_LISTED).collect()
}

/// Lists the unchanged files, the first few by name.
pub(crate) fn left(files: &[FileReport], what: &str) -> Vec<String> {
    let reason = |report: &FileReport| match &report.outcome {
        WriteOutcome::Left(left) => Some((shown(&report.path), left.to_string())),
        WriteOutcome::Written { .. } => None,
    };
    let (named, n_more) = named(files.iter().filter_map(reason));
    let mut lines: Vec<String> =
        named.iter().map(|(path, why)| format!("[{what}: {path} ({why})]")).collect();
    if n_more != 0 {
        lines.push(format!("[{what}: {n_more} more]"));
    }
    lines.extend(detached(files).map(|note| format!("[Note: {note}]")));
    lines
}

/// Names the first files.
pub(crate) fn names(paths: &[PathBuf]) -> String {
    let (named, n_more) = named(paths.iter().map(|path| shown(path)));
    let more = if n_more == 0 { String::new() } else { format!(" and {n_more} more") };
    format!("{}{more}", named.join(", "))
}

/// Lists the skipped files: relevant files by name, binary files by number.
fn skipped(files: &[SkippedFile], n_skipped: u64) -> Vec<String> {
    let others = files.iter().filter(|file| file.reason != SkipReason::Binary);
    let (named, n_more) = named(others.map(|file| (shown(&file.path), file.reason.to_string())));
    let mut lines: Vec<String> =
        named.iter().map(|(path, why)| format!("[Skipped: {path} ({why})]")).collect();
    if n_more != 0 {
        lines.push(format!("[Skipped: {n_more} more]"));
    }

    // Unlisted files are binary, except those beyond the end of a long list.
    let n_binary = n_skipped.saturating_sub((named.len() + n_more) as u64);
    if n_binary != 0 {
        lines.push(format!("[Skipped: {}]", counted(n_binary, "binary file", "binary files")));
    }
    lines
}

/// Reports the reason for an early stop, and replacements interrupted by earlier crashes.
pub(crate) fn closing(applied: &Applied) -> Vec<String> {
    let mut lines = Vec::new();
    match &applied.stopped {
        Some(EarlyStop::Cancelled) => {
            lines.push("[Stopped before the end; what was changed is whole]".to_owned());
        }
        Some(EarlyStop::Failed(why)) => {
            lines.push(format!("[Stopped before the end: {why}; what was changed is whole]"));
        }
        None => (),
    }
    lines.extend(applied.interrupted.iter().map(interrupted));
    lines
}

/// Reports a replacement that a crash interrupted.
pub(crate) fn interrupted(it: &InterruptedReplace) -> String {
    let n_files = it.n_new + it.n_torn;
    format!(
        "[Note: an earlier replacement was interrupted after {}; undo with undo_id {} takes it back]",
        counted(n_files as u64, "file", "files"),
        it.undo_id
    )
}

/// Returns the first few items and the number of the others.
fn named<T>(all: impl Iterator<Item = T>) -> (Vec<T>, usize) {
    let mut all = all.fuse();
    let named: Vec<T> = all.by_ref().take(MAX_NAMED).collect();
    (named, all.count())
}

/// Text that is only cut between lines.
struct Lines {
    text: String,
    max_bytes: usize,
    n_left_out: usize,
}

impl Lines {
    fn push(&mut self, line: &str) {
        if self.n_left_out != 0 || self.max_bytes < self.text.len() + line.len() + 1 {
            self.n_left_out += 1;
        } else {
            self.text.push_str(line);
            self.text.push('\n');
        }
    }

    fn files(&mut self, files: &[&FilePlan], show: DiffMode) {
        if show == DiffMode::None {
            return;
        }

        for file in files {
            self.push(&format!(
                "{}: {} in {}",
                shown(&file.path),
                counted(file.replacements, "match", "matches"),
                counted(file.lines_changed, "line", "lines"),
            ));
        }

        for diff in files.iter().filter_map(|file| file.diff.as_deref()) {
            for line in diff.lines() {
                self.push(line);
            }
        }
    }

    fn ended(mut self) -> String {
        if self.n_left_out != 0 {
            let n_lines = counted(self.n_left_out as u64, "line", "lines");
            self.text.push_str(&format!("[... {n_lines} not shown]\n"));
        }
        self.text.pop();
        self.text
    }
}
