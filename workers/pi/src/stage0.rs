//! Stage 0: what happens before the runtime exists, while the process has one thread. The first frame is read,
//! which names the control group; the monitor splits off, which ends everything below this process with it.
//!
//! Nothing is confined here: Pi is the user's own agent and talks to model providers with the user's keys.
//! docs/security.md says so.

use bytes::BytesMut;
use quackd_ipc::first::{read_first_blocking, write_first_blocking};
use quackd_ipc::{frames, link};
use quackd_process::{
    Group, Role, SessionPaths, harden, rank_above_parent, set_process_name, settle,
    split_off_monitor_of,
};
use quackd_protocol::pi::{
    FromPiWorker, PI_FRAME_PROTOCOL, PiStart, TO_PI_WORKER_TAGS, ToPiWorker,
};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The first frame holds paths and an environment.
const MAX_FIRST_FRAME: usize = 4 * 1024 * 1024;

/// What the runtime starts with.
#[derive(Debug)]
pub(crate) struct Started {
    /// The control channel, off descriptor 0.
    pub(crate) control: OwnedFd,
    /// The first frame.
    pub(crate) start: PiStart,
    /// Where Pi and what it starts are kept together.
    pub(crate) group: Option<Arc<Group>>,
}

/// Why a worker cannot start. None of these is mended by trying again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The system refused.
    #[error("{step}: {source}")]
    System {
        /// What was tried.
        step: &'static str,
        /// The refusal.
        source: io::Error,
    },
    /// The other end is not a supervisor.
    #[error("the control channel holds no start frame: {0}")]
    NoStart(String),
    /// The other end is a supervisor of another version.
    #[error(
        "version mismatch: the supervisor speaks frames {theirs}, this worker {PI_FRAME_PROTOCOL}"
    )]
    Version {
        /// The supervisor's number.
        theirs: u32,
    },
}

/// Tells the supervisor why this worker ends. Nothing can be done if it cannot be told.
pub(crate) fn refuse(error: &StartError) {
    let reason = error.to_string();
    if let Ok(body) = frames::encode(&FromPiWorker::CannotStart { reason }) {
        drop(write_first_blocking(rustix::stdio::stdin(), &body));
    }
}

/// Prepares the process. Returns in the worker; the monitor never returns.
pub(crate) fn enter() -> Result<Started, StartError> {
    let body = read_first_blocking(rustix::stdio::stdin(), MAX_FIRST_FRAME);
    let start = read_start(&body.map_err(|error| StartError::NoStart(error.to_string()))?)?;
    if start.proto != PI_FRAME_PROTOCOL {
        return Err(StartError::Version { theirs: start.proto });
    }
    let paths: Option<SessionPaths> =
        start.cgroup.clone().and_then(|paths| serde_json::from_value(paths).ok());
    let group = paths.as_ref().and_then(|paths| match Group::open(paths) {
        Ok(group) => Some(Arc::new(group)),
        Err(error) => {
            crate::complain(&format!("no control group: {error}"));
            None
        }
    });
    system("cannot set limits", harden(Role::Worker))?;
    if let Err(error) = rank_above_parent() {
        crate::complain(&format!("the order of ends when memory runs out is not set: {error}"));
    }
    system("cannot make a monitor", split_off_monitor_of(paths.as_ref()))?;
    set_process_name("quack-pi-worker");
    system("cannot settle", settle())?;
    let control = system("no control channel", link::take_control_channel())?;
    Ok(Started { control, start, group })
}

fn read_start(body: &BytesMut) -> Result<PiStart, StartError> {
    match frames::decode(body, TO_PI_WORKER_TAGS) {
        Ok(frames::Decoded::Known(ToPiWorker::Start(start))) => Ok(*start),
        Ok(_other) => Err(StartError::NoStart("another message came first".into())),
        Err(error) => Err(StartError::NoStart(error.to_string())),
    }
}

fn system<T>(step: &'static str, result: io::Result<T>) -> Result<T, StartError> {
    result.map_err(|source| StartError::System { step, source })
}
