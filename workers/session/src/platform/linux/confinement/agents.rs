//! Shows the kept state of agents in the private home. Called by `platform` before the process splits.

use quackd_protocol::guest_agents::{find, kept_path};
use quackd_protocol::worker::{KeptState, Start};
use quackd_sandbox::confine::{AgentLock, MountPlan};
use std::path::Path;

/// State of agents that a worker keeps. None by default.
#[derive(Debug, Default)]
pub(crate) struct KeptAgents {
    /// Held until the worker has exited.
    pub(crate) lock: Option<AgentLock>,
    /// Variables of commands: the kept directories of agents that read their place from one.
    pub(crate) variables: Vec<(&'static str, String)>,
}

/// Adds the directories that exist to the plan. Writes a note if they cannot be used. A session that may not write the
/// workspace does not get them.
pub(crate) fn keep(start: &Start, plan: &mut MountPlan, notes: &mut Vec<String>) -> KeptAgents {
    let agents = start.sandbox.agents.as_ref().filter(|_| start.sandbox.policy.may_write());
    let Some(agents) = agents else { return KeptAgents::default() };
    notes.extend_from_slice(&agents.notes);
    let path = Path::new(&agents.directory);
    let lock = match AgentLock::open_blocking(path) {
        Ok(lock) => lock,
        Err(error) => {
            notes.push(format!("logins and settings of agents end with the worker: {error}"));
            return KeptAgents::default();
        }
    };

    let mut variables = Vec::new();
    for KeptState { agent, state } in &agents.kept {
        let from = path.join(kept_path(agent, state));
        // Commands write in this directory, and cannot replace it.
        if !from.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            continue;
        }
        if !plan.keep_agent(Path::new(state), from) {
            notes.push(format!(
                "state of {agent} in ~/{state} is not kept: other files are shown or hidden there"
            ));
            continue;
        }

        let own = find(agent).and_then(|agent| agent.directory);
        let own = own.filter(|directory| directory.value == *state);
        let at = plan.home.join(state).display().to_string();
        variables.extend(own.map(|directory| (directory.name, at)));
    }
    KeptAgents { lock: Some(lock), variables }
}
