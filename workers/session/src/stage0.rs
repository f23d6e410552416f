//! Stage 0: the part of the start before the runtime exists, while the process has one thread.
//!
//! The order matters. Stage 0 reads the first frame, which both halves of the split need. Then the monitor splits
//! off; it keeps the control channel only to see it close. Then the worker is confined (`platform`). The
//! limits are set before the confinement, which forbids some of the calls.

use crate::confinement_result::ConfinementResult;
use crate::network;
use crate::platform;
use crate::real_paths;
use crate::ssh_agent::KnownHosts;
use crate::start_error::WorkerStartError;
use quackd_ipc::first::{read_first_with_descriptors_blocking, write_first_blocking};
use quackd_ipc::link;
use quackd_process::{
    Group, Limits, Role, SessionPaths, complain, harden, rank_above_parent, restore_after_fork,
    set_process_name,
};
use quackd_protocol::worker::{
    CommandLimits, FRAME_PROTOCOL, FromWorker, Start, TO_WORKER_TAGS, ToWorker,
};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

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
    /// The pair to the supervisor and to a proxy.
    pub(crate) network: Option<OwnedFd>,
}

/// Reports the error to the supervisor.
pub(crate) fn refuse(error: &WorkerStartError) {
    let refusal = FromWorker::CannotStart { reason: error.to_string() };
    // A failed report cannot be handled. The exit code means that a retry does not help.
    write_first_blocking(rustix::stdio::stdin(), &refusal).ok();
}

/// Umask of file tools and commands: others may read new files, as with the default of most systems.
const UMASK: rustix::fs::Mode = rustix::fs::Mode::WGRP.union(rustix::fs::Mode::WOTH);

/// Prepares the process. Returns in the worker; the monitor never returns.
pub(crate) fn enter() -> Result<Stage0Output, WorkerStartError> {
    let (mut start, pair) = read_start()?;
    if start.proto != FRAME_PROTOCOL {
        return Err(WorkerStartError::Version { theirs: start.proto, ours: FRAME_PROTOCOL });
    }

    // Before the confinement, whose mounts follow no link.
    let home_links = real_paths::resolve_blocking(&mut start);
    let cgroup = start.sandbox.cgroup.clone().and_then(|paths| serde_json::from_value(paths).ok());
    let group = open_group(cgroup.as_ref());

    // Files get the same mode, whichever program started the daemon.
    rustix::process::umask(UMASK);

    // Set these before the confinement, which forbids some of the calls.
    harden(Role::Worker).map_err(WorkerStartError::at("cannot set limits"))?;
    let ranked = rank_above_parent();
    let limits = limits(&start.limits);
    limits.impose().map_err(WorkerStartError::at("cannot set limits"))?;

    // Before the confinement, which hides the file.
    let known_hosts = KnownHosts::read_blocking(&start);
    let mut confined = platform::enter(&start, &home_links, cgroup.as_ref(), group.as_deref())?;
    if let Err(error) = ranked {
        let note = "if memory runs out, the kernel may kill the daemon before its workers";
        confined.report.notes.push(format!("{note}: {error}"));
    }

    set_process_name("quack-worker");
    restore_after_fork().map_err(WorkerStartError::at("cannot settle"))?;
    let control =
        link::take_control_channel().map_err(WorkerStartError::at("no control channel"))?;
    let network = network::hand_over(pair, &mut confined, &start, &known_hosts)?;
    Ok(Stage0Output { control, start, confined, limits, group, network })
}

/// Opens the control group that the supervisor created. Without it, commands are identified by descent and marks.
fn open_group(paths: Option<&SessionPaths>) -> Option<Arc<Group>> {
    match Group::open(paths?) {
        Ok(group) => Some(Arc::new(group)),
        Err(error) => {
            complain(&format!("no control group: {error}"));
            None
        }
    }
}

fn limits(request: &CommandLimits) -> Limits {
    let usual = Limits::default();
    let processes = request.processes.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    Limits {
        processes: processes.unwrap_or(usual.processes),
        memory: request.memory_bytes,
        file_size: request.file_bytes,
        cpu: request.cpu_s.map(Duration::from_secs),
        min_free: request.min_free_bytes.unwrap_or(usual.min_free),
        ..usual
    }
}

/// Reads the first frame, and the pair that came with it.
fn read_start() -> Result<(Start, Option<OwnedFd>), WorkerStartError> {
    match read_first()? {
        (ToWorker::Start(start), pair) => return Ok((*start, pair)),
        (ToWorker::Template {}, _) => {
            // Returns in each worker, with the worker's own channel.
            quackd_process::serve_template()
                .map_err(WorkerStartError::at("cannot be a template"))?;
            if let (ToWorker::Start(start), pair) = read_first()? {
                return Ok((*start, pair));
            }
        }
        _other => {}
    }
    Err(WorkerStartError::NoStart("another message came first".into()))
}

fn read_first() -> Result<(ToWorker, Option<OwnedFd>), WorkerStartError> {
    let stdin = rustix::stdio::stdin();
    let read = read_first_with_descriptors_blocking(stdin, MAX_FIRST_FRAME, TO_WORKER_TAGS, 1);
    let (first, pair) = read.map_err(|error| WorkerStartError::NoStart(error.to_string()))?;
    Ok((first, pair.into_iter().next()))
}
