//! Opens the directory that keeps the package caches of the workspace. Called by [`crate::confinement`] before the
//! process splits.

use quackd_protocol::worker::Start;
use quackd_sandbox::confine::{CacheDirectory, CacheDirectoryError, HostFacts, MountPlan};
use std::io;
use std::path::Path;

/// Locks the directory for this worker and adds it to the plan. `None` and a note if another worker has it, or if it
/// cannot be used. A session that may not write the workspace does not get it.
pub(crate) fn keep(
    start: &Start,
    facts: &HostFacts,
    plan: &mut MountPlan,
    notes: &mut Vec<String>,
) -> Option<CacheDirectory> {
    let path = start.sandbox.caches.as_deref().filter(|_| start.sandbox.policy.may_write())?;
    let open = || -> Result<_, CacheDirectoryError> {
        let directory = CacheDirectory::open_blocking(Path::new(path))?;
        let handle: io::Result<_> = directory.handle();
        Ok((directory, handle?))
    };
    match open() {
        Ok((directory, handle)) => {
            plan.keep_caches(handle, &facts.missing_caches);
            Some(directory)
        }
        Err(error) => {
            notes.push(note(&error));
            None
        }
    }
}

/// Note for a worker with package caches in memory.
pub(crate) fn note(why: &dyn std::fmt::Display) -> String {
    format!("downloads to package caches are lost when the worker ends: {why}")
}
