//! Where what a child starts is kept together: its control group, where one can be had. Made before the
//! process and ended after it, both on the blocking pool.

use crate::metrics::Metrics;
use quackd_process::{CgroupBase, Limits, SessionPaths};
use quackd_protocol::SessionId;
use std::sync::Arc;
use std::time::Duration;

/// Longest part of a session's id in the name of its control group.
const MAX_NAME: usize = 44;

/// How long the end of a control group may take.
const END_LIMIT: Duration = Duration::from_secs(1);

/// The name of a control group: a prefix of ours, and what may be in a name of the session's id.
pub(crate) fn group_name(prefix: &str, session: &SessionId) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let id: String = session.as_str().chars().map(plain).take(MAX_NAME).collect();
    format!("{prefix}{id}")
}

/// Makes a control group. Without one a child is started all the same. For the blocking pool.
pub(crate) fn control_group(
    cgroups: Option<Arc<CgroupBase>>,
    name: &str,
    processes: u32,
) -> Option<SessionPaths> {
    let made = cgroups?.session_blocking(name, &Limits { processes, ..Limits::default() });
    made.inspect_err(|error| tracing::warn!(name, %error, "no control group")).ok()
}

/// Ends what is left in a control group, and removes it. Nobody waits for that.
pub(super) fn end_group(label: String, cgroup: SessionPaths, metrics: Arc<Metrics>) {
    let end = move || cgroup.end_blocking(END_LIMIT);
    actix::spawn(async move {
        match actix_rt::task::spawn_blocking(end).await {
            Ok(Ok(end)) => {
                metrics.strays_killed.add(end.killed.into());
                metrics.survivors.add(end.survivors.into());
                if end.killed != 0 || !end.removed {
                    tracing::warn!(session = label, ?end, "ended what was left in a control group");
                }
            }
            Ok(Err(error)) => {
                tracing::warn!(session = label, %error, "cannot end a control group");
            }
            // The daemon ends, and its control groups with it.
            Err(_) => {}
        }
    });
}
