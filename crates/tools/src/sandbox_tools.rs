//! What only the supervisor asks of a worker: the audit of the workspace, and what the session may do and why.
//! They run here because the supervisor opens no file of the user's, and because only here it is seen what the
//! confinement shows.
//!
//! In reading order: this file is the two calls, [`audit`] the text of a report, [`layers`] what holds a session,
//! [`path`] what it may do with one path, [`mounts`] what is mounted there.

mod audit;
mod layers;
mod mounts;
mod path;

pub(crate) use path::normalise;

use crate::arguments::Arguments;
use crate::bounds::Bounds;
use crate::{Output, Toolbox};
use quackd_protocol::client::ExplainReport;
use quackd_sandbox::Root;
use quackd_sandbox::audit::{Budget, audit_blocking};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Entries of directories that an audit looks at.
const MAX_ENTRIES: u64 = 2_000_000;

/// What is left of a call's time for its answer.
const RESERVE: Duration = Duration::from_millis(500);

/// Compares the workspace with what it was, and lists what makes git run something.
pub(crate) async fn quack_audit(toolbox: &Toolbox, root: Arc<Root>, bounds: &Bounds) -> Output {
    let before = toolbox.watched.snapshot();
    let until = bounds.deadline.checked_sub(RESERVE).unwrap_or(bounds.deadline);
    let budget = Budget { entries: MAX_ENTRIES, until };
    let audit = move || {
        let handle = root.open_directory(Path::new(""))?;
        audit_blocking(&handle, root.path(), before.as_deref(), budget)
    };
    match bounds.run_blocking(audit).await {
        Ok(Ok(report)) => answer(audit::text(&report), &report),
        Ok(Err(error)) => Output::error(format_args!("The workspace cannot be audited: {error}")),
        Err(cutoff) => Output::cut_off("The audit", bounds, cutoff),
    }
}

/// Says what the session may do, or what it may do with one path.
pub(crate) async fn quack_explain(
    toolbox: &Toolbox,
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &Bounds,
) -> Output {
    let confinement = Arc::clone(&toolbox.confinement);
    let mut report = ExplainReport {
        profile: confinement.policy.profile.name().to_owned(),
        network: confinement.policy.network,
        tier: toolbox.sandbox.tier.clone(),
        notes: toolbox.sandbox.notes.clone(),
        ..ExplainReport::default()
    };
    let Some(target) = arguments.text(&["path"]).map(str::to_owned) else {
        report.layers = layers::layers(&confinement, &report.tier);
        return answer(layers::text(&report), &report);
    };
    let question = path::Question {
        confinement,
        tier: report.tier.clone(),
        run_dir: toolbox.run_dir.clone(),
        target,
    };
    match bounds.run_blocking(move || question.answer_blocking(&root)).await {
        Ok(found) => {
            report.path = Some(found);
            answer(path::text(&report), &report)
        }
        Err(cutoff) => Output::cut_off("The look at it", bounds, cutoff),
    }
}

fn answer(text: String, report: &impl Serialize) -> Output {
    Output { data: serde_json::to_value(report).ok(), ..Output::success(text) }
}
