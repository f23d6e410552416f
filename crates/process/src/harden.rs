//! Process setup of the supervisor and of every worker: descriptor limits, signals, core dumps, adoption of orphans.
//! Each calls it once, before it starts threads.

use crate::platform::{OPEN_FILES, SUPERVISOR_FILES, adopt_orphans, hide_from_others};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};
use rustix::io::FdFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// Maximum number of descriptors of a worker and of each command. A worker needs about ten per running call, and many
/// programs misbehave with a high limit (`select`, loops over all possible descriptors).
const WORKER_FILES: u64 = 4096;

/// Maximum number of descriptors of a network proxy: two for each connection.
const PROXY_FILES: u64 = 2560;

/// Address space of a network proxy in bytes. It needs a few MiB.
const PROXY_MEMORY: u64 = 1024 * 1024 * 1024;

/// Kind of the process that calls [`harden`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The daemon.
    Supervisor,
    /// The network proxy of a session.
    Proxy,
    /// The agent of a session.
    Agent,
    /// A session's worker. Its commands inherit its settings, except signal handlers.
    Worker,
    /// Either side of a link to a worker on another machine.
    Link,
}

/// Prepares this process:
/// - descriptors: the supervisor gets as many as the hard limit allows, at most 1,048,576; a worker and its commands
///   get 4,096;
/// - descriptors inherited from the parent are closed in every child;
/// - core dumps are off, because memory may hold keys. On Linux other processes of the same user cannot read the
///   memory and environment of the supervisor and of its links; the commands of its workers run as that user;
/// - a write beyond a file-size limit fails instead of killing the process (SIGXFSZ). A worker also survives SIGINT
///   and SIGHUP, which a terminal sends to the daemon's whole group: the daemon decides when to exit. These signals
///   get handlers, because commands would inherit an ignored signal;
/// - ignored and blocked signals are reset (all of them in a worker; in the supervisor the mask and SIGCHLD, without
///   which no exit status arrives);
/// - orphaned descendants become children of this process (Linux), so that it can find and kill them.
///
/// # Errors
/// A limit or a signal could not be set.
pub fn harden(role: Role) -> io::Result<()> {
    keep_descriptors_to_ourselves()?;
    limit_files(role)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_default(Signal::SIGCHLD)?;

    if role != Role::Worker {
        hide_from_others()?;
    }

    if role == Role::Proxy {
        setrlimit(
            Resource::As,
            Rlimit { current: Some(PROXY_MEMORY), maximum: Some(PROXY_MEMORY) },
        )?;
    }

    if role != Role::Supervisor {
        for signal in Signal::iterator().filter(|signal| is_resettable(*signal)) {
            stop_ignoring(signal)?;
        }
        survive(Signal::SIGINT)?;
        survive(Signal::SIGHUP)?;
    }

    survive(Signal::SIGXFSZ)?;
    // Unblocked last, so that a waiting signal finds its handler.
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    adopt_orphans()
}

/// Repeats the parts of [`harden`] that a fork loses or that differ in the child: unblocks signals, and makes
/// orphaned descendants children of this process. The worker calls it after the split from its monitor.
///
/// # Errors
/// Same as [`harden`].
pub fn restore_after_fork() -> io::Result<()> {
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    adopt_orphans()
}

/// Sets close-on-exec on every descriptor except the standard three. quackd's descriptors already have it. Inherited
/// ones may not: children could then reach files of the parent, or keep open a pipe whose reader waits for its end.
///
/// # Errors
/// The open descriptors cannot be listed.
#[expect(unsafe_code, reason = "descriptors without an owner have no safe form")]
pub(crate) fn keep_descriptors_to_ourselves() -> io::Result<()> {
    let open: Vec<RawFd> = std::fs::read_dir(OPEN_FILES)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| (3..).contains(fd))
        .collect();

    for fd in open {
        // SAFETY: the number is used for one call that neither closes it nor reads from it. The descriptor of the
        // list is closed by now, and the call on a closed number fails without effect.
        let descriptor = unsafe { BorrowedFd::borrow_raw(fd) };
        // A descriptor that another thread has closed since then needs no flag.
        rustix::io::fcntl_setfd(descriptor, FdFlags::CLOEXEC).ok();
    }
    Ok(())
}

fn limit_files(role: Role) -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let n_files = match role {
        Role::Supervisor => SUPERVISOR_FILES,
        Role::Proxy => PROXY_FILES,
        Role::Worker | Role::Agent | Role::Link => WORKER_FILES,
    };

    let new = Rlimit { current: Some(n_files.min(hard)), maximum: limit.maximum };
    Ok(setrlimit(Resource::Nofile, new)?)
}

/// Returns false for signals whose action must stay. SIGKILL and SIGSTOP cannot be changed. The
/// runtime needs SIGPIPE ignored, and `std` resets SIGPIPE in children.
fn is_resettable(signal: Signal) -> bool {
    !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP | Signal::SIGPIPE)
}

fn stop_ignoring(signal: Signal) -> io::Result<()> {
    let before = set_default(signal)?;
    // The previous action can only be read by setting another one.
    if !matches!(before.handler(), SigHandler::SigIgn) {
        set_action(signal, &before)?;
    }
    Ok(())
}

fn set_default(signal: Signal) -> io::Result<SigAction> {
    set_action(signal, &SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty()))
}

fn survive(signal: Signal) -> io::Result<()> {
    let handler = SigHandler::Handler(survived);
    set_action(signal, &SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty()))?;
    Ok(())
}

extern "C" fn survived(_: nix::libc::c_int) {}

#[expect(unsafe_code, reason = "sigaction(2) has no safe form")]
fn set_action(signal: Signal, action: &SigAction) -> io::Result<SigAction> {
    // SAFETY: this file installs the default action, the previous action, or a handler that does nothing. That
    // handler is async-signal-safe.
    Ok(unsafe { sigaction(signal, action) }?)
}
