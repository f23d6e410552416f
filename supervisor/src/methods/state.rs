//! `get_state`: the current state of one session and its worker.

use super::{AnySession, Caller};
use crate::errors::MethodError;
use crate::registry::{FindSession, Purpose};
use crate::session::pi::RefreshState;
use crate::session::worker::Inspect;
use crate::wire::reference;
use quackd_protocol::SessionId;
use quackd_protocol::client::{StateDataOf, WorkerInfo, WorkerState};
use quackd_protocol::limits::PI_STATE_WAIT;
use serde_json::value::RawValue;
use std::rc::Rc;
use std::time::Instant;

pub(super) async fn get_state(
    AnySession { session_id }: AnySession,
    caller: &Caller,
) -> Result<StateDataOf<Box<RawValue>>, MethodError> {
    let find = FindSession { reference: reference(&session_id), purpose: Purpose::Describe };
    let found = caller.registry.send(find).await??.ok_or(MethodError::NoSession)?;
    let worker = found.handle.send(Inspect).await?.info;
    ask_pi(caller, &found.session_id).await;
    let pis = &caller.services.sessions.pis;
    let is_running = is_up(&worker) || pis.is_running(&found.session_id);
    let status = caller.services.sessions.pool.statuses.of(&found.session_id, Instant::now());
    let interrupted = caller.services.interrupted.of(&found.session_id);
    Ok(StateDataOf {
        pi_state: shown(pis.state(&found.session_id)),
        session_id: found.session_id,
        session_name: found.session_name,
        is_running,
        worker: worker_state(worker, found.restarts),
        safe_mode: found.safe_mode,
        status,
        interrupted,
    })
}

/// Whether a session's worker runs or is starting. A slow start also counts.
pub(super) fn is_up(worker: &WorkerInfo) -> bool {
    worker.monitor_pid.is_some() || worker.state == "starting"
}

/// Requests the state of a session's Pi, if one runs. After a short timeout, the last reported state is used.
pub(super) async fn ask_pi(caller: &Caller, session: &SessionId) {
    let pis = &caller.services.sessions.pis;
    if let Some(pi) = pis.get(session).filter(|_| pis.is_running(session)) {
        pi.send(RefreshState).timeout(PI_STATE_WAIT).await.ok();
    }
}

/// Returns Pi's state in the form for clients.
pub(super) fn shown(state: Option<Rc<RawValue>>) -> Option<Box<RawValue>> {
    // Its size and content were checked when it arrived.
    Some((*state?).to_owned())
}

pub(super) fn worker_state(worker: WorkerInfo, restarts: u64) -> WorkerState {
    let WorkerInfo { state, pid, tier, policy, network, .. } = worker;
    WorkerState { state, pid, restarts, tier, policy, network }
}
