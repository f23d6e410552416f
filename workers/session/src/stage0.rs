//! Stage 0: the part of the start before the runtime exists, while the process has one thread.
//!
//! The order matters. Stage 0 reads the first frame, which both halves of the split need. Then the monitor splits
//! off; it keeps the control channel only to see it close. Then the worker is confined ([`crate::confinement`]). The
//! limits are set before the confinement, which forbids some of the calls.

use crate::confinement;
use crate::confinement_result::ConfinementResult;
use crate::start_error::WorkerStartError;
use quackd_ipc::{frames, link};
use quackd_process::{
    Group, Limits, Role, SessionPaths, harden, rank_above_parent, restore_after_fork,
    set_process_name,
};
use quackd_protocol::worker::{
    CommandLimits, FRAME_PROTOCOL, FromWorker, Start, TO_WORKER_TAGS, ToWorker,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Timeout for the first frame. The supervisor writes the frame before it starts the worker, so a longer wait means
/// that no supervisor started this process.
const FIRST_FRAME_DEADLINE: Duration = Duration::from_secs(10);

/// Maximum size of the first frame in bytes. It contains paths and an environment.
const MAX_FIRST_FRAME: usize = 1024 * 1024;

/// Input of the runtime.
#[derive(Debug)]
pub(crate) struct Stage0Output {
    /// Control channel, moved away from descriptor 0.
    pub(crate) control: OwnedFd,
    /// The first frame.
    pub(crate) start: Start,
    /// Confinement in force.
    pub(crate) confined: ConfinementResult,
    /// Resource limits of commands.
    pub(crate) limits: Limits,
    /// Control group of the commands.
    pub(crate) group: Option<Arc<Group>>,
}

/// Reports the error to the supervisor. A failed report cannot be handled. The exit code means that a retry does not
/// help.
pub(crate) fn refuse(error: &WorkerStartError) {
    let reason = error.to_string();
    let Ok(body) = frames::encode(&FromWorker::CannotStart { reason }) else { return };
    let length = u32::try_from(body.len()).unwrap_or(0).to_be_bytes();
    // The frame is short and the first one, so it fits into the socket's buffer.
    let frame = [length.as_slice(), &body].concat();
    let _written = rustix::io::write(rustix::stdio::stdin(), &frame);
}

/// Prepares the process. Returns in the worker; the monitor never returns.
pub(crate) fn enter() -> Result<Stage0Output, WorkerStartError> {
    let start = read_start(rustix::stdio::stdin())?;
    if start.proto != FRAME_PROTOCOL {
        return Err(WorkerStartError::Version { theirs: start.proto, ours: FRAME_PROTOCOL });
    }
    let cgroup = start.sandbox.cgroup.clone().and_then(|paths| serde_json::from_value(paths).ok());
    let group = open_group(cgroup.as_ref());
    // Set these before the confinement, which forbids some of the calls.
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
    system("cannot settle", restore_after_fork())?;
    let control = system("no control channel", link::take_control_channel())?;
    Ok(Stage0Output { control, start, confined, limits, group })
}

/// Opens the control group that the supervisor created. Without it, commands are identified by descent and marks.
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

fn system<T>(step: &'static str, result: io::Result<T>) -> Result<T, WorkerStartError> {
    result.map_err(|source| WorkerStartError::System { step, source })
}

fn read_start(control: BorrowedFd<'_>) -> Result<Start, WorkerStartError> {
    let until = Instant::now() + FIRST_FRAME_DEADLINE;
    let mut length = [0_u8; 4];
    read_exact(control, &mut length, until)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if MAX_FIRST_FRAME < length {
        return Err(WorkerStartError::NoStart(format!("a first frame of {length} bytes")));
    }
    let mut body = bytes::BytesMut::zeroed(length);
    read_exact(control, &mut body, until)?;
    match frames::decode(&body, TO_WORKER_TAGS) {
        Ok(frames::Decoded::Known(ToWorker::Start(start))) => Ok(*start),
        Ok(_other) => Err(WorkerStartError::NoStart("another message came first".into())),
        Err(error) => Err(WorkerStartError::NoStart(error.to_string())),
    }
}

/// Reads from the channel, which is non-blocking, without a runtime.
fn read_exact(
    from: BorrowedFd<'_>,
    mut into: &mut [u8],
    until: Instant,
) -> Result<(), WorkerStartError> {
    while !into.is_empty() {
        match rustix::io::read(from, &mut *into) {
            Ok(0) => return Err(WorkerStartError::NoStart("it was closed".into())),
            Ok(n) => into = into.get_mut(n..).unwrap_or_default(),
            Err(rustix::io::Errno::AGAIN) => wait_readable(from, until)?,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return system("cannot read the control channel", Err(errno.into())),
        }
    }
    Ok(())
}

fn wait_readable(from: BorrowedFd<'_>, until: Instant) -> Result<(), WorkerStartError> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(WorkerStartError::NoStart(format!(
            "nothing came for {FIRST_FRAME_DEADLINE:?}"
        )));
    }
    let timeout = Timespec::try_from(left).ok();
    match poll(&mut [PollFd::new(&from, PollFlags::IN)], timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => system("cannot wait for the control channel", Err(errno.into())),
    }
}
