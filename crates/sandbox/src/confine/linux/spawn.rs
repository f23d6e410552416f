//! Splits one process into three: the monitor stays outside, process 1 of new namespaces builds the worker's file
//! system, and the worker is its child. Called by stage 0, while the process has one thread.
//!
//! The three exit together. The kernel kills process 1 when the monitor exits, and all processes in the namespace
//! when process 1 exits. Process 1 exits after the worker, once it has reported the worker's status to the monitor.

use super::directory_id::DirectoryId;
use super::error::{ConfineError, StepContext};
use super::held::HeldCalls;
use super::sys;
use nix::libc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    PidfdFlags, Signal, chdir, fchdir, getpid, pidfd_open, set_parent_process_death_signal,
};
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Side of the split that this process is on.
#[derive(Debug)]
pub enum Side {
    /// Outside. Watch [`Monitor::init`], and read the worker's status from [`Monitor::status`].
    Monitor(Monitor),
    /// Process 1 of the new namespaces. Continue with [`Init::enter`].
    Init(Init),
}

/// State of the monitor after the split.
#[derive(Debug)]
pub struct Monitor {
    /// Process id of process 1 outside; it is the monitor's child. Killing it kills all processes inside.
    pub init: u32,
    /// Carries the worker's raw wait status as four bytes, least significant first, once the worker has exited.
    /// Closed without them if process 1 failed or was killed first. Read it after process 1 has exited.
    pub status: OwnedFd,
}

/// Process 1 of new namespaces, before it has built the file system.
#[derive(Debug)]
pub struct Init {
    /// Write end of the pipe that carries the worker's status to the monitor.
    pub(crate) status: OwnedFd,
    /// Identity of the workspace, which is the working directory.
    pub(crate) workspace: DirectoryId,
    /// True to keep the machine's network.
    pub(crate) network: bool,
}

/// Splits this process. `workspace` is an open handle of the workspace. The child's working directory is that
/// directory, even if it was renamed. With `network` the child stays in the machine's network namespace.
///
/// The kernel kills the child when this process exits.
///
/// # Errors
/// This process has several threads, or the kernel refuses namespaces.
pub fn split(workspace: BorrowedFd<'_>, network: bool) -> Result<Side, ConfineError> {
    sys::require_single_thread().step("split the process")?;

    let identity = DirectoryId::of(workspace).step("look at the workspace")?;
    fchdir(workspace).step("enter the workspace")?;
    let monitor = pidfd_open(getpid(), PidfdFlags::empty()).step("open the monitor")?;
    let (from_init, status) = pipe_with(PipeFlags::CLOEXEC).step("make a pipe")?;

    match sys::clone_into(namespaces(network)).step("make namespaces")? {
        Some(init) => {
            // The monitor does not work in the workspace, so it must not keep the workspace's file system busy.
            chdir("/").step("leave the workspace")?;
            Ok(Side::Monitor(Monitor { init: init.unsigned_abs(), status: from_init }))
        }
        None => {
            die_with(&monitor)?;
            Ok(Side::Init(Init { status, workspace: identity, network }))
        }
    }
}

/// Returns the flags for the namespaces of a worker.
pub(crate) fn namespaces(network: bool) -> libc::c_int {
    let always = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    if network { always } else { always | libc::CLONE_NEWNET }
}

/// Requests a kill of this process when its parent exits. `parent` is a handle of the parent.
fn die_with(parent: &OwnedFd) -> Result<(), ConfineError> {
    set_parent_process_death_signal(Some(Signal::KILL)).step("ask to end with the monitor")?;

    // The monitor may have ended before the signal was set. Here `getppid` is 0 in both cases, because the monitor is
    // outside of the namespace.
    let mut watched = [PollFd::new(parent, PollFlags::IN)];
    poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).step("look at the monitor")?;
    if watched.iter().any(|one| !one.revents().is_empty()) {
        return Err(ConfineError::new("look at the monitor", "it ended"));
    }
    Ok(())
}

/// Maps this process's user and group to the same ids in its new namespace, which has no other users and groups.
pub(crate) fn map_identity(uid: u32, gid: u32) -> Result<(), ConfineError> {
    // The kernel accepts `gid_map` from a process without privileges only after `setgroups` was denied.
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{uid} {uid} 1")),
        ("/proc/self/gid_map", format!("{gid} {gid} 1")),
    ] {
        fs::write(file, text).step_on("map the user", file.as_ref())?;
    }
    Ok(())
}

/// Waits for the worker's exit. Reaps all orphans, as process 1 must. Answers the suspended calls of commands
/// on other threads. Never returns.
pub(crate) fn reap_until_end(
    worker: i32,
    status: &OwnedFd,
    held: Option<(HeldCalls, OwnedFd)>,
) -> ! {
    let mut kept = vec![status.as_raw_fd()];
    if let Some((calls, connection)) = &held {
        kept.push(connection.as_raw_fd());
        kept.extend(calls.git.1.iter().map(|(_, top)| top.as_raw_fd()));
    }

    // Close all other descriptors, or a pipe would stay open here after the worker closes it.
    kept.sort_unstable();
    let mut first = 0;
    for keep in kept {
        // The call exists since Linux 5.9. Mounts need 5.12, so it does not fail here.
        sys::close_between(first, Some(keep - 1)).ok();
        first = keep + 1;
    }
    sys::close_between(first, None).ok();

    // Without answers, the commands would wait until they are killed.
    if let Some((calls, connection)) = held
        && calls.start(connection).is_err()
    {
        sys::end_process(libc::EXIT_FAILURE)
    }

    loop {
        match sys::wait_for_any() {
            Ok((pid, raw)) if pid == worker => {
                // Four bytes fit into an empty pipe. If the monitor has exited, the kernel kills this process soon.
                rustix::io::write(status, &raw.to_le_bytes()).ok();
                sys::end_process(libc::EXIT_SUCCESS)
            }
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(_) => sys::end_process(libc::EXIT_FAILURE),
        }
    }
}
