//! Stage 0: what happens before the runtime exists, while the process has one thread.
//!
//! Order matters: the first frame is read, which says what both halves need; the monitor splits off (it
//! holds the control channel only to see it close) and the worker is confined ([`crate::confinement`]); then
//! the worker sets its limits.

use crate::confined::Confined;
use crate::confinement;
use quackd_ipc::{frames, link};
use quackd_process::{
    Group, Limits, Role, SessionPaths, harden, rank_above_parent, set_process_name, settle,
};
use quackd_protocol::worker::{
    CommandLimits, FRAME_PROTOCOL, FromWorker, Start, TO_WORKER_TAGS, ToWorker,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The supervisor writes the first frame before it spawns; a worker that has to wait this long is not
/// anybody's worker.
const FIRST_FRAME_DEADLINE: Duration = Duration::from_secs(10);

/// The first frame holds paths and an environment.
const MAX_FIRST_FRAME: usize = 1024 * 1024;

/// What the runtime starts with.
#[derive(Debug)]
pub(crate) struct Started {
    /// The control channel, off descriptor 0.
    pub(crate) control: OwnedFd,
    /// The first frame.
    pub(crate) start: Start,
    /// What confinement is in force.
    pub(crate) confined: Confined,
    /// What commands may use.
    pub(crate) limits: Limits,
    /// Where they are kept together and counted.
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
    /// What the policy asks for cannot be enforced here.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "nothing is entered there"))]
    #[error("cannot be confined: {0}")]
    Confinement(String),
    /// The other end is a supervisor of another version.
    #[error("version mismatch: the supervisor speaks frames {theirs}, this worker {ours}")]
    Version {
        /// The supervisor's number.
        theirs: u32,
        /// Ours.
        ours: u32,
    },
}

/// Tells the supervisor why this worker ends. Nothing can be done if it cannot be told; the exit code says
/// that trying again is of no use.
pub(crate) fn refuse(error: &StartError) {
    let reason = error.to_string();
    let Ok(body) = frames::encode(&FromWorker::CannotStart { reason }) else { return };
    let length = u32::try_from(body.len()).unwrap_or(0).to_be_bytes();
    // Both are short and the first that is written: they fit into the socket.
    let frame = [length.as_slice(), &body].concat();
    let _written = rustix::io::write(rustix::stdio::stdin(), &frame);
}

/// Prepares the process. Returns in the worker; the monitor never returns.
pub(crate) fn enter() -> Result<Started, StartError> {
    let start = read_start(rustix::stdio::stdin())?;
    if start.proto != FRAME_PROTOCOL {
        return Err(StartError::Version { theirs: start.proto, ours: FRAME_PROTOCOL });
    }
    let cgroup = start.sandbox.cgroup.clone().and_then(|paths| serde_json::from_value(paths).ok());
    let group = open_group(cgroup.as_ref());
    // Before the confinement, which forbids some of it.
    system("cannot set limits", harden(Role::Worker))?;
    let ranked = rank_above_parent();
    let limits = limits(&start.limits);
    system("cannot set limits", limits.impose())?;
    let mut confined = confinement::enter(&start, cgroup.as_ref(), group.as_deref())?;
    if let Err(error) = ranked {
        let note = "if memory runs out, the kernel may kill the daemon before its workers";
        confined.report.notes.push(format!("{note}: {error}"));
    }
    set_process_name("quack-worker");
    system("cannot settle", settle())?;
    let control = system("no control channel", link::take_control_channel())?;
    Ok(Started { control, start, confined, limits, group })
}

/// Opens the control group that the supervisor made. Without it commands are found by descent and marks.
fn open_group(paths: Option<&SessionPaths>) -> Option<Arc<Group>> {
    match Group::open(paths?) {
        Ok(group) => Some(Arc::new(group)),
        Err(error) => {
            crate::complain(&format!("no control group: {error}"));
            None
        }
    }
}

fn limits(wanted: &CommandLimits) -> Limits {
    let usual = Limits::default();
    let processes = wanted.processes.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    Limits {
        processes: processes.unwrap_or(usual.processes),
        file_size: wanted.file_bytes,
        cpu: wanted.cpu_s.map(Duration::from_secs),
        min_free: wanted.min_free_bytes.unwrap_or(usual.min_free),
        ..usual
    }
}

fn system<T>(step: &'static str, result: io::Result<T>) -> Result<T, StartError> {
    result.map_err(|source| StartError::System { step, source })
}

fn read_start(control: BorrowedFd<'_>) -> Result<Start, StartError> {
    let until = Instant::now() + FIRST_FRAME_DEADLINE;
    let mut length = [0_u8; 4];
    read_exact(control, &mut length, until)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if MAX_FIRST_FRAME < length {
        return Err(StartError::NoStart(format!("a first frame of {length} bytes")));
    }
    let mut body = bytes::BytesMut::zeroed(length);
    read_exact(control, &mut body, until)?;
    match frames::decode(&body, TO_WORKER_TAGS) {
        Ok(frames::Decoded::Known(ToWorker::Start(start))) => Ok(*start),
        Ok(_other) => Err(StartError::NoStart("another message came first".into())),
        Err(error) => Err(StartError::NoStart(error.to_string())),
    }
}

/// The channel is non-blocking, and there is no runtime yet.
fn read_exact(from: BorrowedFd<'_>, mut into: &mut [u8], until: Instant) -> Result<(), StartError> {
    while !into.is_empty() {
        match rustix::io::read(from, &mut *into) {
            Ok(0) => return Err(StartError::NoStart("it was closed".into())),
            Ok(n) => into = into.get_mut(n..).unwrap_or_default(),
            Err(rustix::io::Errno::AGAIN) => wait_readable(from, until)?,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return system("cannot read the control channel", Err(errno.into())),
        }
    }
    Ok(())
}

fn wait_readable(from: BorrowedFd<'_>, until: Instant) -> Result<(), StartError> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(StartError::NoStart(format!("nothing came for {FIRST_FRAME_DEADLINE:?}")));
    }
    let timeout = Timespec::try_from(left).ok();
    match poll(&mut [PollFd::new(&from, PollFlags::IN)], timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => system("cannot wait for the control channel", Err(errno.into())),
    }
}
