//! Stage 0: the part of the start before the runtime exists, while the process has one thread. It reads the first
//! frame, which contains the path of the control group, and splits off the monitor, which kills all descendants when
//! this process exits.
//!
//! Nothing is confined here: Pi is the user's own agent and uses model providers with the user's keys. See
//! docs/security.md.

use quackd_ipc::first::{read_first_blocking, write_first_blocking};
use quackd_ipc::link;
use quackd_process::{
    Group, Role, SessionPaths, harden, rank_above_parent, restore_after_fork, set_process_name,
    split_off_monitor_of,
};
use quackd_protocol::agent::{AGENT_FRAME_PROTOCOL, FromPi, PiStart, TO_AGENT_TAGS, ToAgent};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Maximum size of the first frame in bytes. It contains paths and an environment.
const MAX_FIRST_FRAME: usize = 4 * 1024 * 1024;

/// Input of the runtime.
#[derive(Debug)]
pub(crate) struct Stage0Output {
    /// Control channel, moved away from descriptor 0.
    pub(crate) control: OwnedFd,
    /// The first frame.
    pub(crate) start: PiStart,
    /// Control group of Pi and its processes.
    pub(crate) group: Option<Arc<Group>>,
}

/// Error of starting a worker. A retry does not help.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PiWorkerStartError {
    /// A system call failed.
    #[error("{step}: {source}")]
    System {
        /// The failed step.
        step: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The other end is not a supervisor.
    #[error("the control channel holds no start frame: {0}")]
    NoStart(String),
    /// The other end is a supervisor of another version.
    #[error(
        "version mismatch: the supervisor speaks frames {theirs}, this worker {AGENT_FRAME_PROTOCOL}"
    )]
    Version {
        /// Frame protocol of the supervisor.
        theirs: u32,
    },
}

/// Reports the error to the supervisor. A failed report cannot be handled.
pub(crate) fn refuse(error: &PiWorkerStartError) {
    let refusal = FromPi::CannotStart { reason: error.to_string() };
    write_first_blocking(rustix::stdio::stdin(), &refusal).ok();
}

/// Prepares the process. Returns in the worker; the monitor never returns.
pub(crate) fn enter() -> Result<Stage0Output, PiWorkerStartError> {
    let start = read_start()?;
    if start.proto != AGENT_FRAME_PROTOCOL {
        return Err(PiWorkerStartError::Version { theirs: start.proto });
    }

    let paths: Option<SessionPaths> =
        start.cgroup.clone().and_then(|paths| serde_json::from_value(paths).ok());
    let group = paths.as_ref().and_then(|paths| match Group::open(paths) {
        Ok(group) => Some(Arc::new(group)),
        Err(error) => {
            quackd_process::complain(&format!("no control group: {error}"));
            None
        }
    });

    system("cannot set limits", harden(Role::Worker))?;
    // If memory runs out, this process ends before the supervisor.
    if let Err(error) = rank_above_parent() {
        quackd_process::complain(&format!("cannot set the OOM score: {error}"));
    }
    system("cannot start the monitor", split_off_monitor_of(paths.as_ref()))?;
    set_process_name("quack-pi-worker");
    system("cannot settle", restore_after_fork())?;

    let control = system("no control channel", link::take_control_channel())?;
    Ok(Stage0Output { control, start, group })
}

fn read_start() -> Result<PiStart, PiWorkerStartError> {
    match read_first_blocking(rustix::stdio::stdin(), MAX_FIRST_FRAME, TO_AGENT_TAGS) {
        Ok(ToAgent::Start(start)) => Ok(*start),
        Ok(_other) => Err(PiWorkerStartError::NoStart("another message came first".into())),
        Err(error) => Err(PiWorkerStartError::NoStart(error.to_string())),
    }
}

fn system<T>(step: &'static str, result: io::Result<T>) -> Result<T, PiWorkerStartError> {
    result.map_err(|source| PiWorkerStartError::System { step, source })
}
