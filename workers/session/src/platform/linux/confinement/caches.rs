//! Opens the directory that keeps the package caches of the workspace. Called by `platform` before the
//! process splits.

use quackd_protocol::worker::Start;
use quackd_sandbox::confine::{AgentLock, CacheDirectory, HostFacts, MountPlan, git_mounts};
use std::path::Path;

/// Locks the directory for this worker and adds it to the plan. `None` and a note if another worker has it, or if it
/// cannot be used. A session that may not write the workspace does not get it.
pub(crate) fn keep(
    start: &Start,
    facts: &HostFacts,
    plan: &mut MountPlan,
    notes: &mut Vec<String>,
) -> Option<CacheDirectory> {
    let policy = &start.sandbox.policy;
    let path = start.sandbox.caches.as_deref().filter(|_| policy.may_write()).map(Path::new)?;
    // Also without a network: the user may allow a host while the worker runs.
    let opened = CacheDirectory::open_blocking(path).and_then(|directory| {
        plan.keep_caches(&directory, &facts.missing_caches)?;
        Ok(directory)
    });
    opened.map_err(|error| notes.push(note(&error))).ok()
}

/// Returns the last steps of the monitor: removes placeholders, and releases the caches and the state of agents.
pub(crate) fn at_the_end(
    placeholders: Option<git_mounts::Placeholders>,
    kept: Option<CacheDirectory>,
    agents: Option<AgentLock>,
) -> impl FnOnce() {
    move || {
        placeholders.into_iter().for_each(git_mounts::Placeholders::clean_own_blocking);
        kept.into_iter().for_each(CacheDirectory::release_blocking);
        drop(agents);
    }
}

/// Note for a worker with package caches in memory.
pub(crate) fn note(why: &dyn std::fmt::Display) -> String {
    format!("downloads to package caches are lost when the worker ends: {why}")
}
