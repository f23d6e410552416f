//! What the supervisor and every worker do first: descriptor limits, signals, core dumps, adoption of
//! orphans. Called once by each, before threads exist.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};
use rustix::io::FdFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// Most descriptors that the supervisor asks for. More would only make programs slow that close every
/// possible descriptor one by one.
#[cfg(target_os = "linux")]
const SUPERVISOR_FILES: u64 = 1_048_576;

/// Most descriptors that macOS grants (`OPEN_MAX`); it refuses to set more.
#[cfg(not(target_os = "linux"))]
const SUPERVISOR_FILES: u64 = 10_240;

/// Descriptors of a worker and of each command. A worker needs about ten per call in flight, and many
/// programs behave badly above a modest limit (`select`, loops over all possible descriptors).
const WORKER_FILES: u64 = 4096;

/// Which process prepares itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The daemon.
    Supervisor,
    /// A session's worker. Its commands inherit what it sets here, but for signal handlers.
    Worker,
}

/// Prepares this process:
/// - descriptors: the supervisor gets all that the hard limit allows, at most 1,048,576; a worker and
///   its commands get 4,096;
/// - whatever our own starter left open is closed in every process that we start;
/// - no core dumps: memory may hold keys; the supervisor's memory and environment cannot be read by other
///   processes of its user (Linux), which its workers' commands are;
/// - a write beyond a file-size limit is an error instead of the end (SIGXFSZ); a worker also outlives
///   SIGINT and SIGHUP, which a terminal sends to the daemon's whole group: the daemon decides. These
///   are handlers, because an ignored signal would stay ignored in every command;
/// - signals that our own starter ignored or blocked are as usual again (all of them in a worker;
///   SIGCHLD, without which no exit status arrives, and the mask also in the supervisor);
/// - orphaned descendants become our children (Linux), so that they can be found and ended.
///
/// # Errors
/// A limit or a signal could not be set.
pub fn harden(role: Role) -> io::Result<()> {
    keep_descriptors_to_ourselves()?;
    limit_files(role)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_default(Signal::SIGCHLD)?;
    if role == Role::Supervisor {
        hide_from_others()?;
    }
    if role == Role::Worker {
        for signal in Signal::iterator().filter(|signal| is_resettable(*signal)) {
            stop_ignoring(signal)?;
        }
        survive(Signal::SIGINT)?;
        survive(Signal::SIGHUP)?;
    }
    survive(Signal::SIGXFSZ)?;
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    adopt_orphans()
}

/// What of [`harden`] is lost by a fork, or is different in the child: signals are let through again, and
/// orphaned descendants become this process's children. Called by the worker once it is on its own.
///
/// # Errors
/// As there.
pub fn settle() -> io::Result<()> {
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    adopt_orphans()
}

/// Makes `/proc/PID/environ`, `mem` and the like of this process readable for root only.
#[cfg(target_os = "linux")]
fn hide_from_others() -> io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

#[cfg(not(target_os = "linux"))]
fn hide_from_others() -> io::Result<()> {
    Ok(())
}

/// Makes this process the one that orphaned descendants become children of.
#[cfg(target_os = "linux")]
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // Any number but zero switches it on (PR_SET_CHILD_SUBREAPER(2const)).
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

#[cfg(not(target_os = "linux"))]
fn adopt_orphans() -> io::Result<()> {
    Ok(())
}

/// Sets close-on-exec on every descriptor but the standard three. Ours have it already; what we inherited
/// may not, and would let our children reach files of whoever started us, or keep a pipe open that
/// somebody waits to see closed.
///
/// # Errors
/// The open descriptors cannot be listed.
#[expect(unsafe_code, reason = "descriptors without an owner have no safe form")]
pub(crate) fn keep_descriptors_to_ourselves() -> io::Result<()> {
    let list = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
    let open: Vec<RawFd> = std::fs::read_dir(list)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| (3..).contains(fd))
        .collect();
    for fd in open {
        // SAFETY: the number is used for one call that neither closes it nor reads from it. The list's
        // own descriptor is closed by now, and for a closed number the call fails without effect.
        let descriptor = unsafe { BorrowedFd::borrow_raw(fd) };
        let _is_set = rustix::io::fcntl_setfd(descriptor, FdFlags::CLOEXEC);
    }
    Ok(())
}

fn limit_files(role: Role) -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let wanted = match role {
        Role::Supervisor => SUPERVISOR_FILES,
        Role::Worker => WORKER_FILES,
    };
    let new = Rlimit { current: Some(wanted.min(hard)), maximum: limit.maximum };
    Ok(setrlimit(Resource::Nofile, new)?)
}

/// SIGKILL and SIGSTOP cannot be changed, and the runtime needs SIGPIPE ignored; `std` resets that one
/// in children by itself.
fn is_resettable(signal: Signal) -> bool {
    !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP | Signal::SIGPIPE)
}

fn stop_ignoring(signal: Signal) -> io::Result<()> {
    let before = set_default(signal)?;
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
    // SAFETY: this file sets the default, what was in force before, or a handler that does nothing,
    // which is async-signal-safe.
    Ok(unsafe { sigaction(signal, action) }?)
}

/// Sets the name that `ps` and `top` show for this process, cut to 15 bytes. Call it from the main
/// thread. For people only: failure is silent, and outside Linux it does nothing.
pub fn set_process_name(name: &str) {
    #[cfg(target_os = "linux")]
    {
        let short: Vec<u8> = name.bytes().filter(|byte| *byte != 0).take(15).collect();
        if let Ok(short) = std::ffi::CString::new(short) {
            let _named = rustix::thread::set_name(&short);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _: &str = name;
}
