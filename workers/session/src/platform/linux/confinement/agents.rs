//! Shows the kept state of agents in the private home. Called by `platform` before the process splits.

use quackd_protocol::guest_agents::GUEST_AGENTS;
use quackd_protocol::worker::Start;
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
    let path = start.sandbox.agents.as_deref().filter(|_| start.sandbox.policy.may_write());
    let Some(path) = path.map(Path::new) else { return KeptAgents::default() };
    let lock = match AgentLock::open_blocking(path) {
        Ok(lock) => lock,
        Err(error) => {
            notes.push(format!("logins and settings of agents end with the worker: {error}"));
            return KeptAgents::default();
        }
    };

    let mut variables = Vec::new();
    for agent in GUEST_AGENTS {
        for state in agent.state {
            let from = path.join(agent.kept_path(state));
            // Commands write in this directory, and cannot replace it.
            if !from.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                continue;
            }
            if !plan.keep_agent(Path::new(state), from) {
                notes.push(format!(
                    "state of {} in ~/{state} is not kept: other files are shown or hidden there",
                    agent.name
                ));
                continue;
            }

            let own = agent.directory.filter(|directory| directory.value == *state);
            let at = plan.home.join(state).display().to_string();
            variables.extend(own.map(|directory| (directory.name, at)));
        }
    }
    KeptAgents { lock: Some(lock), variables }
}
