//! Control group of one child, if the system offers control groups. Created before the process starts and removed after
//! its exit, both on the blocking pool.

use crate::metrics::Metrics;
use quackd_process::{CgroupBase, Limits, SessionPaths};
use quackd_protocol::SessionId;
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of the session id in the name of its control group, in characters.
const MAX_NAME: usize = 44;

/// Timeout for killing the processes of a control group and removing it.
const END_LIMIT: Duration = Duration::from_secs(1);

/// Returns the name of a session's control group: `prefix` and the session id, with `_` for other characters.
pub(crate) fn group_name(prefix: &str, session: &SessionId) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let id: String = session.as_str().chars().map(plain).take(MAX_NAME).collect();
    format!("{prefix}{id}")
}

/// Creates a control group with limits of processes and memory, in bytes. If that fails, the child starts without one.
/// For the blocking pool.
pub(crate) fn create_cgroup(
    cgroups: Option<Arc<CgroupBase>>,
    name: &str,
    processes: u32,
    memory: Option<u64>,
) -> Option<SessionPaths> {
    let limits = Limits { processes, memory, ..Limits::default() };
    let made = cgroups?.session_blocking(name, &limits);
    let paths = made.inspect_err(|error| tracing::warn!(name, %error, "no control group")).ok()?;
    if let Some(error) = &paths.no_memory_limit {
        tracing::warn!(name, %error, "the kernel does not limit the memory of a session");
    }
    Some(paths)
}

/// Kills the remaining processes in a control group and removes it, in the background.
pub(super) fn remove_cgroup(label: String, cgroup: SessionPaths, metrics: Arc<Metrics>) {
    let end = move || cgroup.end_blocking(END_LIMIT);

    actix::spawn(async move {
        match actix_rt::task::spawn_blocking(end).await {
            Ok(Ok(end)) => {
                metrics.strays_killed.add(end.killed.into());
                metrics.survivors.add(end.survivors.into());
                if end.killed != 0 || !end.removed {
                    tracing::warn!(
                        session = label,
                        ?end,
                        "killed the remaining processes of a control group"
                    );
                }
            }
            Ok(Err(error)) => {
                tracing::warn!(session = label, %error, "cannot remove a control group");
            }
            // The daemon is shutting down and removes its control groups itself.
            Err(_) => {}
        }
    });
}
