//! `get_state`: the current state of one session and its worker.

use super::servers::servers;
use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::pool::snapshot::{AgentSnapshot, SessionSnapshot, WorkerSnapshot};
use crate::registry::Purpose;
use crate::session::FoundSession;
use crate::session::agent::RefreshAgent;
use crate::wire::reference;
use quackd_protocol::agent::Engine;
use quackd_protocol::client::{AnySession, StateDataOf, StateParams, WorkerState};
use quackd_protocol::limits::AGENT_STATE_WAIT;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Instant;

impl Serve<StateParams> for Caller {
    async fn serve(&self, params: AnySession) -> Result<StateDataOf<Box<RawValue>>, MethodError> {
        let AnySession { session_id } = params;
        let found = self.session(reference(&session_id), Purpose::Describe).await?;

        // The snapshot comes after both waits, so that it is new.
        ask_agent(self, &found).await;
        let servers = servers(&found.session_id, self).await;
        let table = &self.services.sessions.table;
        let session = table.snapshot(&found.session_id);

        let interrupted = self.services.interrupted.of(&found.session_id);
        let copies = &self.services.sessions.pool.copies;
        let copy_bytes = found.isolated.as_ref().and_then(|_| copies.bytes(&found.session_id));
        let pi_state = agent_state(&session.agent);
        let engine = session.agent.process.is_alive().then_some(session.agent.engine);
        let of_native = pi_state.as_ref().filter(|_| session.agent.engine == Engine::Native);
        let known = of_native.and_then(|state| serde_json::from_str(state.get()).ok());
        let ShownState { stats } = known.unwrap_or_default();
        Ok(StateDataOf {
            pi_state,
            stats,
            engine: engine.map(|engine| engine.name().to_owned()),
            mcp_problems: session.agent.mcp_problems.to_vec(),
            pi_session_file: Some(found.pi_session_file).filter(|file| !file.is_empty()),
            status: session.status(table.is_pinned(&found.session_id), Instant::now()),
            session_id: found.session_id,
            session_name: found.session_name,
            is_running: is_running(&session),
            worker: worker_state(&session.worker, found.restarts),
            safe_mode: found.safe_mode,
            isolated: found.isolated.is_some(),
            copy_bytes,
            servers,
            interrupted,
        })
    }
}

/// Part of an agent's state that `get_state` shows by itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ShownState {
    stats: Option<Box<RawValue>>,
}

/// Returns whether the session has a process or its worker is starting.
pub(super) fn is_running(session: &SessionSnapshot) -> bool {
    session.worker.is_up() || session.agent.process.is_alive()
}

/// Requests the state of a session's Pi, if one runs. After a short timeout, the last reported state is used.
pub(super) async fn ask_agent(caller: &Caller, found: &FoundSession) {
    let session = caller.services.sessions.table.snapshot(&found.session_id);
    if session.agent.process.is_alive() {
        found.actors.agent.send(RefreshAgent).timeout(AGENT_STATE_WAIT).await.ok();
    }
}

/// Returns Pi's state in the form for clients.
pub(super) fn agent_state(pi: &AgentSnapshot) -> Option<Box<RawValue>> {
    // Its size and content were checked when it arrived.
    Some((**pi.state.as_ref()?).to_owned())
}

/// Returns the worker of a session, which crashed this number of times.
pub(super) fn worker_state(worker: &WorkerSnapshot, restarts: u64) -> WorkerState {
    let hello = worker.hello.as_ref();
    WorkerState {
        state: worker.state(),
        pid: hello.map(|hello| hello.pid).filter(|_| !worker.is_far),
        restarts,
        tier: hello.and_then(|hello| hello.sandbox.tier),
        policy: hello.and_then(|hello| hello.sandbox.policy),
        network: hello.map(|hello| hello.sandbox.network),
        hosts: worker.has_hosts(),
        pending: worker.pending.as_deref().cloned(),
    }
}
