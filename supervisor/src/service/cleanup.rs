//! Cleanup at startup: control groups and run directories that the previous daemon left. Called by
//! [`crate::service::daemon`] before anything else runs.

use crate::errors::chain;
use crate::errors::start::StartError;
use quackd_config::Config;
use quackd_home::{Home, HomeError, InstanceLock};
use quackd_process::{CgroupBase, end_left_commands_blocking, mark_commands_with};
use quackd_protocol::tiers::Tier;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Timeout for a lock that a child of a killed daemon may hold, and the pause between two attempts.
const LOCK_TIMEOUT: Duration = Duration::from_millis(250);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Timeout for the end of the commands that a killed daemon left.
const COMMANDS_TIMEOUT: Duration = Duration::from_secs(2);

/// Takes the instance lock. `None` if another daemon holds it. If a daemon is killed while it starts a child, the child
/// holds a copy of the lock until its `exec`, a few milliseconds later.
pub(crate) fn take_lock_blocking(home: &Home) -> Result<Option<InstanceLock>, HomeError> {
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        let lock = quackd_home::lock_blocking(home)?;
        if lock.is_some() || until <= Instant::now() {
            return Ok(lock);
        }
        // No other thread runs in this process yet.
        std::thread::park_timeout(LOCK_POLL_INTERVAL);
    }
}

/// Creates the control groups for commands, and kills the processes that a killed daemon left in its groups.
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

/// Kills the commands that a killed daemon left where no monitor does, as on macOS. Workers of a daemon that was killed
/// alone end their commands themselves.
pub(crate) fn end_left_commands(home: &Home, config: &Config) {
    if let Err(error) = mark_commands_with(home.dir()) {
        tracing::warn!(%error, "cannot read the state directory; commands of a killed daemon stay");
        return;
    }

    let in_tests_of_macos = config.sandbox.tier.value == Some(Tier::M);
    let Some(sweep) = end_left_commands_blocking(COMMANDS_TIMEOUT, in_tests_of_macos) else {
        return;
    };
    if sweep.killed != 0 {
        tracing::warn!(killed = sweep.killed, "killed commands that a killed daemon left");
    }
    if !sweep.verified_empty {
        tracing::warn!("commands of a killed daemon may still run");
    }
}

/// Moves the last run directory aside, keeps the journals of changed files, and deletes the rest in
/// the background. Workers of a killed daemon may still be exiting: the files that they write are
/// deleted as well.
pub(crate) fn move_aside_run_dir(home: &Home) -> Result<(), StartError> {
    if let Err(error) = home.retire_run_dir_blocking() {
        tracing::warn!(error = %chain(&error), "cannot move the old run directory aside");
    }

    home.prepare_blocking()?;
    if let Err(error) = home.keep_undo_data_blocking() {
        tracing::warn!(error = %chain(&error), "cannot keep the old contents of changed files");
    }

    let home = home.clone();
    // In a separate thread, because a large directory takes long and the start must not wait for it.
    let delete = std::thread::Builder::new().name("retire".into()).spawn(move || {
        if let Err(error) = home.remove_retired_blocking() {
            tracing::warn!(error = %chain(&error), "cannot delete an old run directory");
        }
    });
    // Without a thread, a later garbage collection deletes it.
    delete.map(drop).or(Ok(()))
}
