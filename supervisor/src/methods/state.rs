//! `get_state`: one session and its worker as they are now.

use super::{Caller, params};
use crate::errors::MethodError;
use crate::registry::{FindSession, Purpose};
use crate::wire::{Request, reference};
use crate::worker_handle::Describe;
use quackd_protocol::client::{StateData, WorkerInfo, WorkerState};
use serde::Deserialize;
use serde_json::Value;

/// As upstream takes it: any JSON value.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Params {
    session_id: Value,
}

pub(super) async fn get_state(
    request: &mut Request,
    caller: &Caller,
) -> Result<StateData, MethodError> {
    let Params { session_id } = params(request, "get_state")?;
    let find = FindSession { reference: reference(&session_id), purpose: Purpose::Look };
    let found = caller.registry.send(find).await??.ok_or(MethodError::NoSession)?;
    let worker = found.handle.send(Describe).await?;
    Ok(StateData {
        session_id: found.session_id,
        session_name: found.session_name,
        is_running: worker.monitor_pid.is_some(),
        worker: worker_state(worker, found.restarts),
        safe_mode: found.safe_mode,
    })
}

pub(super) fn worker_state(worker: WorkerInfo, restarts: u64) -> WorkerState {
    let WorkerInfo { state, pid, tier, policy, .. } = worker;
    WorkerState { state, pid, restarts, tier, policy }
}
