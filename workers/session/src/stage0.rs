//! Stage 0: what happens before the runtime exists, while the process has one thread.
//!
//! Order matters: the monitor splits off (it holds the control channel only to see it close), then the
//! worker sets its limits and reads the first frame. Confinement will be applied here, between the frame
//! and the runtime. Until then the worker says that it is unconfined.

use quackd_ipc::{frames, link};
use quackd_process::{Role, harden, set_process_name, split_off_monitor};
use quackd_protocol::worker::{FRAME_PROTOCOL, SandboxReport, Start, TO_WORKER_TAGS, ToWorker};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::OwnedFd;
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
    pub(crate) sandbox: SandboxReport,
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
    #[error("version mismatch: the supervisor speaks frames {theirs}, this worker {ours}")]
    Version {
        /// The supervisor's number.
        theirs: u32,
        /// Ours.
        ours: u32,
    },
}

/// Prepares the process. Returns in the worker; the monitor never returns.
pub(crate) fn enter() -> Result<Started, StartError> {
    system("cannot start the monitor", split_off_monitor())?;
    set_process_name("quack-worker");
    // Only now: what it asks of the kernel (to adopt orphans, for one) is not inherited over a fork.
    system("cannot set limits", harden(Role::Worker))?;
    let control = system("no control channel", link::take_control_channel())?;
    let start = read_start(&control)?;
    if start.proto != FRAME_PROTOCOL {
        return Err(StartError::Version { theirs: start.proto, ours: FRAME_PROTOCOL });
    }
    let sandbox = SandboxReport { tier: "unconfined".into(), policy: "full-access".into() };
    Ok(Started { control, start, sandbox })
}

fn system<T>(step: &'static str, result: io::Result<T>) -> Result<T, StartError> {
    result.map_err(|source| StartError::System { step, source })
}

fn read_start(control: &OwnedFd) -> Result<Start, StartError> {
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
        Ok(frames::Decoded::Known(ToWorker::Start(start))) => Ok(start),
        Ok(_other) => Err(StartError::NoStart("another message came first".into())),
        Err(error) => Err(StartError::NoStart(error.to_string())),
    }
}

/// The channel is non-blocking, and there is no runtime yet.
fn read_exact(from: &OwnedFd, mut into: &mut [u8], until: Instant) -> Result<(), StartError> {
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

fn wait_readable(from: &OwnedFd, until: Instant) -> Result<(), StartError> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(StartError::NoStart(format!("nothing came for {FIRST_FRAME_DEADLINE:?}")));
    }
    let timeout = Timespec::try_from(left).ok();
    match poll(&mut [PollFd::new(from, PollFlags::IN)], timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => system("cannot wait for the control channel", Err(errno.into())),
    }
}
