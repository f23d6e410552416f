//! Calls that only the supervisor makes: the audit of the workspace, and the explanation of the session's
//! permissions. They run in the worker because the supervisor opens none of the user's files, and because only
//! the worker sees the confinement's mounts.
//!
//! In reading order: this file contains the two calls, [`audit`] formats a report, [`layers`] describes the
//! layers that confine a session, and [`path`] the permissions for one path. [`mounts`] parses the mounts.

mod audit;
mod layers;
mod mounts;
mod path;

pub(crate) use path::normalise;

use crate::arguments::Arguments;
use crate::call_limits::CallLimits;
use crate::{Data, Output, Toolbox};
use quackd_protocol::client::ExplainReport;
use quackd_protocol::tools::{AuditArguments, ExplainArguments};
use quackd_sandbox::Root;
use quackd_sandbox::audit::{Before, Budget, Snapshot, add_report, audit_blocking};
use quackd_sandbox::git::hold_directory_blocking;
use serde::Serialize;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of directory entries that an audit reads.
const MAX_ENTRIES: u64 = 2_000_000;

/// Time reserved for the answer of a call.
const RESERVE: Duration = Duration::from_millis(500);

/// Compares the workspace and the other writable directories with their initial state, and lists the names that make
/// git run programs.
pub(crate) async fn quack_audit(
    toolbox: &Toolbox,
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    let snapshot = toolbox.state.watched.snapshot();
    let until = bounds.deadline.checked_sub(RESERVE).unwrap_or(bounds.deadline);
    let budget = Budget { entries: MAX_ENTRIES, until };
    let since_ms = AuditArguments::of(arguments.object()).since_ms;
    let writable = toolbox.confinement.policy.writable_roots.clone();

    let audit = move || {
        let handle = root.open_directory(Path::new(""))?;
        let since = since_ms.map(Duration::from_millis);
        let before = Before { snapshot: snapshot.as_deref(), since };
        let mut report = audit_blocking(&handle, root.path(), before, budget)?;
        report.since_ms = since_ms;

        // Of these directories there is no snapshot, so the times of their files count.
        let began = snapshot.as_deref().map(Snapshot::began);
        let before = Before { snapshot: None, since: since.into_iter().chain(began).min() };
        for directory in writable.iter().filter(|at| !at.starts_with(root.path())) {
            match hold_directory_blocking(directory)
                .and_then(|handle| audit_blocking(&handle, directory, before, budget))
            {
                Ok(other) => add_report(&mut report, directory, other),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(_) => report.complete = false,
            }
        }
        io::Result::Ok(report)
    };

    match bounds.run_blocking(audit).await {
        Ok(Ok(report)) => answer(audit::text(&report), &report),
        Ok(Err(error)) => Output::error(format_args!("The workspace cannot be audited: {error}")),
        Err(cutoff) => Output::cut_off("The audit", bounds, cutoff),
    }
}

/// Explains the permissions of the session, or those for one path.
pub(crate) async fn quack_explain(
    toolbox: &Toolbox,
    root: Arc<Root>,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    let confinement = Arc::clone(&toolbox.confinement);
    let mut report = ExplainReport {
        profile: Some(confinement.policy.profile),
        network: confinement.policy.network,
        hosts: confinement.policy_now().hosts.is_some(),
        tier: toolbox.sandbox.tier,
        notes: toolbox.sandbox.notes.clone(),
        ..ExplainReport::default()
    };

    let Some(target) = ExplainArguments::of(arguments.object()).path else {
        report.layers = layers::layers(&confinement, report.tier);
        return answer(layers::text(&report), &report);
    };

    let question = path::PathQuery {
        confinement,
        tier: report.tier,
        run_dir: toolbox.run_dir.clone(),
        target,
    };

    match bounds.run_blocking(move || question.answer_blocking(&root)).await {
        Ok(explained) => {
            report.path = Some(explained);
            answer(path::text(&report), &report)
        }
        Err(cutoff) => Output::cut_off("The look at it", bounds, cutoff),
    }
}

fn answer(text: String, report: &impl Serialize) -> Output {
    Output { data: serde_json::to_value(report).ok().map(Data::from), ..Output::success(text) }
}
