//! What a daemon does at its start about what the last one left: control groups and run directories.
//! Called by [`crate::service::daemon`], before anything else runs.

use crate::errors::chain;
use crate::errors::start::StartError;
use quackd_config::Config;
use quackd_home::{Home, HomeError, InstanceLock};
use quackd_process::CgroupBase;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait for a lock that a killed daemon's child may hold, and the pause between two attempts.
const LOCK_PATIENCE: Duration = Duration::from_millis(250);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Takes the instance lock; `None` if another daemon has it. A daemon that was killed while it started a child
/// leaves a copy of the lock in that child until it has executed its program, some milliseconds later.
pub(crate) fn take_lock_blocking(home: &Home) -> Result<Option<InstanceLock>, HomeError> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        let lock = quackd_home::lock_blocking(home)?;
        if lock.is_some() || until <= Instant::now() {
            return Ok(lock);
        }
        // Nothing else runs in this process yet.
        std::thread::park_timeout(LOCK_PAUSE);
    }
}

/// Makes the control groups for commands, and ends what a daemon that was killed has left in its own.
pub(crate) fn cgroups(config: &Config) -> (Option<Arc<CgroupBase>>, Option<String>) {
    let total = u32::try_from(config.limits.total_processes.value).unwrap_or(u32::MAX);
    match CgroupBase::open_blocking(total) {
        Ok(base) => {
            let (kind, total, directory) = (base.kind(), base.total(), base.directory());
            tracing::info!(?kind, total, directory = %directory.display(), "control groups");
            (Some(Arc::new(base)), None)
        }
        Err(error) => {
            tracing::info!(%error, "no control groups");
            (None, Some(error.to_string()))
        }
    }
}

/// Puts aside what sessions of the last run spilled, and deletes it while the daemon serves already.
/// Workers of a daemon that was killed may still be ending: what they write goes with it.
pub(crate) fn retire_run_dir(home: &Home) -> Result<(), StartError> {
    if let Err(error) = home.retire_run_dir_blocking() {
        tracing::warn!(error = %chain(&error), "cannot put the old run directory aside");
    }
    home.prepare_blocking()?;
    let home = home.clone();
    let delete = std::thread::Builder::new().name("retire".into()).spawn(move || {
        if let Err(error) = home.remove_retired_blocking() {
            tracing::warn!(error = %chain(&error), "cannot delete an old run directory");
        }
    });
    // Without a thread it is deleted later, as all that is left over.
    delete.map(drop).or(Ok(()))
}
