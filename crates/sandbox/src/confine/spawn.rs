//! From one process to three: the monitor stays outside, process 1 of new namespaces builds the worker's
//! world, and the worker is its child. Called by stage 0, while the process has one thread.
//!
//! The three end together: the kernel kills process 1 when the monitor ends, and everything in the namespace
//! when process 1 ends; process 1 ends when the worker has, after it has told the monitor how.

use super::error::{ConfineError, Step};
use super::mounts::DirectoryId;
use super::sys;
use nix::libc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    PidfdFlags, Signal, chdir, fchdir, getpid, pidfd_open, set_parent_process_death_signal,
};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Which side of the split this process is.
#[derive(Debug)]
pub enum Side {
    /// Outside: watch [`Monitor::init`], and read the worker's end from [`Monitor::status`].
    Monitor(Monitor),
    /// Process 1 of the new namespaces: go on with [`Init::enter`].
    Init(Init),
}

/// What the monitor keeps.
#[derive(Debug)]
pub struct Monitor {
    /// Process 1, as the monitor sees it: its child. To end everything, kill it.
    pub init: u32,
    /// Gives the worker's raw wait status as four bytes, least first, once it has ended; closed without
    /// them if process 1 ended first, by a failure or a kill. Read it after process 1 has ended.
    pub status: OwnedFd,
}

/// Process 1 of new namespaces, before it has built anything.
#[derive(Debug)]
pub struct Init {
    /// Where the monitor reads how the worker ended.
    pub(crate) status: OwnedFd,
    /// The workspace, which is the working directory.
    pub(crate) workspace: DirectoryId,
    /// True if the machine's network stays.
    pub(crate) network: bool,
}

/// Splits this process. `workspace` is an open handle of the workspace; the child's working directory is
/// that directory, whatever its names are by now. With `network` the child stays in the machine's network.
///
/// The child is killed by the kernel when this process ends.
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
            // The workspace must not be held by a process that does not work in it.
            chdir("/").step("leave the workspace")?;
            Ok(Side::Monitor(Monitor { init: init.unsigned_abs(), status: from_init }))
        }
        None => {
            die_with(&monitor)?;
            Ok(Side::Init(Init { status, workspace: identity, network }))
        }
    }
}

/// The namespaces of a worker.
pub(crate) fn namespaces(network: bool) -> libc::c_int {
    let always = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    if network { always } else { always | libc::CLONE_NEWNET }
}

/// Ties the life of this process to its parent's, which `parent` is a handle of.
fn die_with(parent: &OwnedFd) -> Result<(), ConfineError> {
    set_parent_process_death_signal(Some(Signal::KILL)).step("ask to end with the monitor")?;
    let mut watched = [PollFd::new(parent, PollFlags::IN)];
    poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).step("look at the monitor")?;
    if watched.iter().any(|one| !one.revents().is_empty()) {
        return Err(ConfineError::new("look at the monitor", "it ended"));
    }
    Ok(())
}

/// Makes this process's user and group in its new namespace the same as outside; nobody else exists there.
pub(crate) fn map_identity(uid: u32, gid: u32) -> Result<(), ConfineError> {
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{uid} {uid} 1")),
        ("/proc/self/gid_map", format!("{gid} {gid} 1")),
    ] {
        fs::write(file, text).step_on("map the user", file.as_ref())?;
    }
    Ok(())
}

/// Waits for the worker's end as process 1 must: reaping whatever becomes its child. Never returns.
pub(crate) fn reap_until_end(worker: i32, status: &OwnedFd) -> ! {
    let keep = status.as_fd().as_raw_fd();
    // What the worker uses must be closed when the worker closes it.
    let _closed = sys::close_between(0, Some(keep - 1));
    let _closed = sys::close_between(keep + 1, None);
    loop {
        match sys::wait_for_any() {
            Ok((pid, raw)) if pid == worker => {
                // Four bytes fit into an empty pipe. Should the monitor be gone, so are we in a moment.
                let _written = rustix::io::write(status, &raw.to_le_bytes());
                sys::end_process(libc::EXIT_SUCCESS)
            }
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(_) => sys::end_process(libc::EXIT_FAILURE),
        }
    }
}
