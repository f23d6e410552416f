//! Work in progress. A restart waits for it; a shutdown interrupts it.

use crate::registry::{Registry, TakeSnapshot};
use crate::session::services::SessionServices;
use actix::Addr;
use quackd_protocol::client::{UnfinishedWork, WorkKind, WorkerInfo};
use quackd_protocol::mask::masked;

/// Maximum length of a description of work, in characters.
const MAX_SHOWN: usize = 100;

/// Returns all work in progress. Empty if the registry has stopped.
pub(crate) async fn unfinished(
    services: &SessionServices,
    registry: &Addr<Registry>,
) -> Vec<UnfinishedWork> {
    let Ok(snapshot) = registry.send(TakeSnapshot).await else { return Vec::new() };
    let workers = snapshot.workers(services);
    workers.iter().flat_map(of_session).collect()
}

fn of_session(worker: &WorkerInfo) -> Vec<UnfinishedWork> {
    let item = |kind, what: &str, elapsed_ms| UnfinishedWork {
        session_id: worker.session_id.clone(),
        session_name: worker.session_name.clone(),
        label: worker.label.clone(),
        kind,
        // A shutdown writes it to a file. Masked before the cut, because a cut key would no longer
        // be recognized and its first part would stay.
        what: masked(what).chars().take(MAX_SHOWN).collect(),
        elapsed_ms,
    };

    let calls =
        worker.calls.iter().map(|call| item(WorkKind::Call, &call.tool, Some(call.elapsed_ms)));
    let jobs = worker.jobs.iter().map(|job| {
        let what = format!("{} {}", job.job_id, job.command);
        item(WorkKind::Job, &what, Some(job.elapsed_ms))
    });

    let turn = worker.pi.as_ref().filter(|pi| pi.busy);
    let turn =
        turn.map(|pi| item(WorkKind::Turn, if pi.native { "the agent" } else { "Pi" }, None));
    calls.chain(jobs).chain(turn).collect()
}
