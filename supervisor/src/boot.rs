//! What a daemon does at its start about what the last one left: control groups and run directories.
//! Called by [`crate::daemon`], before anything else runs.

use crate::daemon::StartError;
use quackd_config::Config;
use quackd_home::Home;
use quackd_process::CgroupBase;
use std::sync::Arc;

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
    const RETIRED: &str = "run.old-";
    let retired = home.dir().join(format!("{RETIRED}{}", std::process::id()));
    #[expect(clippy::disallowed_methods, reason = "nothing durable: if it fails, old spills stay")]
    if let Err(error) = std::fs::rename(home.run_dir(), retired) {
        tracing::warn!(%error, "cannot put the old run directory aside");
    }
    home.prepare_blocking()?;
    let dir = home.dir().to_path_buf();
    let delete = std::thread::Builder::new().name("retire".into()).spawn(move || {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        for entry in entries.filter(|e| e.file_name().to_string_lossy().starts_with(RETIRED)) {
            if let Err(error) = std::fs::remove_dir_all(entry.path()) {
                tracing::warn!(%error, "cannot delete an old run directory");
            }
        }
    });
    // Without a thread the next start deletes it.
    delete.map(drop).or(Ok(()))
}
