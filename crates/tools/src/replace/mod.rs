//! replace and undo: quackd's tools over the plans of `crates/search` and the journal of
//! [`crate::replace::journal`].
//!
//! Owns the conditions, the time limits and the answers of replacements. `crates/facades` replaces by
//! [`crate::WorkspaceCall::replace`].

pub(crate) mod data;
pub(crate) mod journal;
mod output;
pub(crate) mod text;
pub(crate) mod undo;

pub use output::ReplaceOutput;

use crate::call_limits::{CallLimits, CancelOnDrop, StopCause};
use crate::caller_dir::CallerDir;
use crate::read_tracker::ReadTracker;
use crate::replace::journal::{
    ApplyError, Backup, ChangeAuthor, Expect, Journal, JournalSession, Plans, apply_blocking,
};
use crate::search_common::{
    BadStart, Budget, RootTree, SearchFailure, capitalised, pattern, scope, starts_blocking,
};
use crate::{Call, Confinement, Output, Toolbox, arguments::Arguments};
use quackd_protocol::limits::MAX_OUTPUT_BYTES;
use quackd_protocol::tools::{BadParameter, Counts, NewPlanArguments, REPLACE, ReplaceArguments};
use quackd_sandbox::Root;
use quackd_search::replace::{DiffMode, Replace, ReplaceError, ReplacePlan, plan};
use quackd_search::{Pattern, Scope, SearchError, Stop};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

/// Extra time for writing after the deadline, so that a started replacement can finish. Limited, because the
/// daemon kills a worker that does not answer.
const WRITING_SLACK: Duration = Duration::from_secs(1);

/// Further extra time for the answer.
const ANSWER_SLACK: Duration = Duration::from_secs(2);

pub(crate) async fn replace(
    toolbox: &Toolbox,
    call: &Call,
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    if let Some(refused) = toolbox.refuse_change(call, "replace") {
        return refused;
    }
    let params = match ReplaceParams::read(arguments, bounds) {
        Ok(params) => params,
        Err(error) => return Output::error(error),
    };

    let place = params.paths.first().map_or(".", String::as_str);
    if let Some(refused) = toolbox.confinement.refuse_read_only(place) {
        return refused;
    }

    let max_bytes = params.max_bytes;
    let show = params.show;
    let budget = params.budget;

    match run(toolbox, call, root, bounds, params).await {
        Ok(done) => bounded(done.output(show, max_bytes, budget, &toolbox.confinement)),
        Err(refusal) => refusal.output("replace", bounds),
    }
}

/// Parsed arguments.
pub(crate) struct ReplaceParams {
    pub(crate) job: PlanSource,
    pub(crate) paths: Vec<String>,
    pub(crate) is_dry_run: bool,
    pub(crate) expect: Expect,
    pub(crate) backup: Backup,
    /// Time for planning. Writing gets the remaining time.
    pub(crate) budget: Budget,
    pub(crate) show: DiffMode,
    pub(crate) max_bytes: usize,
    /// Directory of the caller.
    pub(crate) directory: CallerDir,
}

/// Source of the plan.
pub(crate) enum PlanSource {
    /// A new plan.
    New(Box<Replace>),
    /// A stored plan from a dry run.
    Planned(String),
}

impl ReplaceParams {
    fn read(arguments: &Arguments, bounds: &CallLimits) -> Result<Self, BadParameter> {
        let params = ReplaceArguments::of(arguments.known(&REPLACE)?);
        let directory = arguments.directory().clone();
        let is_dry_run = params.dry_run?;
        let show = match params.diff? {
            Some("none") => DiffMode::None,
            Some("unified") => DiffMode::Unified,
            Some(_) => DiffMode::Stat,
            None if is_dry_run => DiffMode::Unified,
            None => DiffMode::Stat,
        };

        let budget = planning(bounds, params.timeout_ms?);
        let max_bytes = params.max_bytes?.unwrap_or(MAX_OUTPUT_BYTES);
        let mut expect = expect(params.expect?);

        let (job, paths) = match params.plan_id? {
            Some(_) if is_dry_run => {
                let why = "Parameters 'plan_id' and 'dry_run' exclude each other";
                return Err(BadParameter::Other(why.to_owned()));
            }
            Some(id) => {
                // Apply exactly the previewed plan, or nothing.
                expect.unchanged = true;
                (PlanSource::Planned(id.trim().to_owned()), Vec::new())
            }
            None => {
                let (request, paths) = request(params.plan, &directory, show, max_bytes, budget)?;
                (PlanSource::New(Box::new(request)), paths)
            }
        };

        let backup = match params.backup? {
            Some("none") => Backup::None,
            _ => Backup::Journal,
        };
        Ok(Self { job, paths, is_dry_run, expect, backup, budget, show, max_bytes, directory })
    }
}

/// Returns the time for planning: at most half of the remaining time, because writing is not interrupted.
pub(crate) fn planning(bounds: &CallLimits, timeout_ms: Option<u64>) -> Budget {
    let left = bounds.deadline.saturating_duration_since(Instant::now()) / 2;
    let half = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    Budget::at_most(bounds, Some(timeout_ms.map_or(half, |timeout| timeout.min(half))))
}

pub(crate) fn expect(Counts { files, lines, replacements }: Counts) -> Expect {
    Expect { files, lines, replacements, unchanged: false }
}

fn request(
    params: NewPlanArguments,
    directory: &CallerDir,
    diff: DiffMode,
    max_bytes: usize,
    budget: Budget,
) -> Result<(Replace, Vec<String>), BadParameter> {
    let pattern = pattern::pattern(params.what)?;
    let replacement = params.replacement?;
    let (scope, paths) = scope::scope(params.files, directory)?;
    let request = Replace {
        template: params.template?.unwrap_or(!pattern.literal),
        scope,
        line_range: params.line_range?,
        max_files: params.max_files?,
        max_replacements: params.max_replacements?,
        max_per_file: params.max_per_file?,
        skip_binary: params.skip_binary?,
        diff,
        max_diff_bytes: max_bytes,
        raw_newlines: params.raw_newlines?,
        ..of_pattern(pattern, replacement, budget)
    };
    Ok((request, paths))
}

/// Creates a request with a pattern and the defaults.
fn of_pattern(pattern: Pattern, replacement: String, budget: Budget) -> Replace {
    let usual = Replace::new("", replacement, Stop::at(budget.deadline));
    Replace { pattern, scope: Scope::default(), ..usual }
}

/// Reason why nothing was replaced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplaceToolError {
    #[error(transparent)]
    Parameter(#[from] BadParameter),
    #[error(transparent)]
    Start(#[from] BadStart),
    #[error("{}", request_text(.0))]
    Request(#[from] ReplaceError),
    #[error("{}", apply_text(.0))]
    Apply(#[from] ApplyError),
    #[error(
        "There is no plan '{0}': a plan is kept for 15 minutes, and 16 of them; make a new dry run"
    )]
    NoPlan(String),
    #[error("replace is not complete")]
    CutOff(StopCause),
}

impl ReplaceToolError {
    pub(crate) fn output(&self, tool: &str, bounds: &CallLimits) -> Output {
        match self {
            Self::CutOff(cutoff) => Output::cut_off(tool, bounds, *cutoff),
            Self::Request(ReplaceError::Search(SearchError::Cancelled)) => {
                Output::cut_off(tool, bounds, StopCause::Aborted)
            }
            other => Output::error(other),
        }
    }
}

fn request_text(error: &ReplaceError) -> String {
    match error {
        ReplaceError::Search(error) => SearchFailure::Request(error.clone()).to_string(),
        other => capitalised(&other.to_string()),
    }
}

fn apply_text(error: &ApplyError) -> String {
    match error {
        ApplyError::Changed { first, .. } => {
            let named: Vec<String> =
                first.iter().map(|path| format!("\n{}", path.display())).collect();
            format!("{}{}", capitalised(&error.to_string()), named.concat())
        }
        ApplyError::Request(error) => request_text(error),
        other => capitalised(&other.to_string()),
    }
}

/// Session state for the threads of a call.
#[derive(Clone)]
pub(crate) struct CallContext {
    root: Arc<Root>,
    confinement: Arc<Confinement>,
    seen: Arc<ReadTracker>,
    journal: Arc<Journal>,
    plans: Arc<Plans>,
    author: ChangeAuthor,
}

impl CallContext {
    pub(crate) fn of(toolbox: &Toolbox, call: &Call, root: Arc<Root>) -> Self {
        Self {
            root,
            confinement: Arc::clone(&toolbox.confinement),
            seen: Arc::clone(&toolbox.state.seen),
            journal: Arc::clone(&toolbox.state.journal),
            plans: Arc::clone(&toolbox.state.plans),
            author: ChangeAuthor { tool: call.spec.tool.clone(), origin: call.spec.origin.clone() },
        }
    }

    pub(crate) fn session(&self) -> JournalSession<'_> {
        JournalSession {
            root: &self.root,
            confinement: &self.confinement,
            seen: &self.seen,
            journal: &self.journal,
            author: &self.author,
        }
    }
}

/// Plans a replacement, and applies it unless it is a dry run.
///
/// Planning can be canceled at any time. Writing runs to its end: only an abort by the user, or an exceeded
/// deadline, stops it between two files. The answer then lists the written files, which can be undone.
pub(crate) async fn run(
    toolbox: &Toolbox,
    call: &Call,
    root: Arc<Root>,
    bounds: &CallLimits,
    params: ReplaceParams,
) -> Result<ReplaceOutput, ReplaceToolError> {
    let hold = CallContext::of(toolbox, call, root);
    let ReplaceParams { job, paths, is_dry_run, expect, backup, budget, directory, .. } = params;
    let planning = hold.clone();
    let cancel = CancelOnDrop::default();
    let stop = Stop { deadline: budget.deadline, cancelled: cancel.flag() };

    let planned = bounds
        .run_blocking(move || plan_blocking(&planning, job, &paths, stop, is_dry_run))
        .await
        .map_err(ReplaceToolError::CutOff)??;
    // Not earlier: the drop stops the planning.
    drop(cancel);
    let (plan, plan_id) = planned;

    if is_dry_run || plan.timed_out {
        return Ok(ReplaceOutput { plan, applied: None, plan_id, is_dry_run, directory });
    }

    let writing = Arc::clone(&plan);
    let applied = write(bounds, move |cancelled| {
        apply_blocking(hold.session(), &writing, &expect, backup, cancelled)
    });
    Ok(ReplaceOutput { applied: Some(applied.await?), plan, plan_id: None, is_dry_run, directory })
}

fn plan_blocking(
    hold: &CallContext,
    job: PlanSource,
    paths: &[String],
    stop: Stop,
    is_kept: bool,
) -> Result<(Arc<ReplacePlan>, Option<String>), ReplaceToolError> {
    let mut request = match job {
        PlanSource::Planned(id) => {
            let plan = hold.plans.get_blocking(&id).ok_or(ReplaceToolError::NoPlan(id))?;
            return Ok((plan, None));
        }
        PlanSource::New(request) => request,
    };

    request.stop = stop;
    request.scope.starts = starts_blocking(&hold.root, paths)?;
    let mut plan = plan(&request, &RootTree(&hold.root))?;

    // A stored plan must not contain the cancellation flag of this call.
    plan.request.stop.cancelled = Arc::new(AtomicBool::new(false));

    let is_kept = is_kept && plan.is_complete() && !plan.files.is_empty();
    // Without an id, the dry run is still useful.
    let plan_id = if is_kept { hold.plans.keep_blocking(plan.clone()).ok() } else { None };
    Ok((Arc::new(plan), plan_id))
}

/// Runs work that writes files. The work stops between files after an abort, or when the call is far past its
/// deadline. It continues if only this future is dropped.
pub(crate) async fn write<T: Send + 'static, E: Send + 'static>(
    bounds: &CallLimits,
    work: impl FnOnce(&dyn Fn() -> bool) -> Result<T, E> + Send + 'static,
) -> Result<T, ReplaceToolError>
where
    ReplaceToolError: From<E>,
{
    let (cancel, deadline): (CancellationToken, Instant) = (bounds.cancel.clone(), bounds.deadline);
    let work = spawn_blocking(move || {
        work(&move || cancel.is_cancelled() || deadline + WRITING_SLACK <= Instant::now())
    });

    let patience = tokio::time::Instant::from_std(deadline + WRITING_SLACK + ANSWER_SLACK);
    match tokio::time::timeout_at(patience, work).await {
        Ok(Ok(done)) => Ok(done?),
        Ok(Err(_)) => Err(ReplaceToolError::CutOff(StopCause::Broken)),
        Err(_) => Err(ReplaceToolError::CutOff(StopCause::TimedOut)),
    }
}

/// Shrinks the answer to fit into a frame: removes the diffs from the data first, then shortens the text.
pub(crate) fn bounded(mut output: Output) -> Output {
    if output.fits_into_frame() {
        return output;
    }
    if let Some(data) = &mut output.data {
        let mut value = data.value();
        data::without_diffs(&mut value);
        *data = value.into();
    }
    if !output.fits_into_frame() {
        output.text = crate::truncate::head(output.text.as_bytes(), MAX_OUTPUT_BYTES).text;
        output.text.push('\n');
        output.text.push_str(crate::truncate::TRUNCATED);
        output.report.truncated = true;
    }
    output
}
