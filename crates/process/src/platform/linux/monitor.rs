//! The monitor: a small process between the supervisor and one worker. It ensures that no process of a worker
//! outlives the worker, and that no worker outlives the supervisor. The worker's stage 0 splits it off.
//!
//! It holds only the control channel (descriptor 0, never read) and stderr, and adopts the worker's orphans. It
//! sleeps until the worker or the supervisor exits, and then exits with the worker's status. So the supervisor, whose
//! direct child it is, sees the true cause.
//!
//! | event | effect |
//! |---|---|
//! | the worker exits | the monitor kills all descendants, and exits with the same code or signal |
//! | the supervisor exits, or closes its end of the channel | the monitor kills the worker at once, even a stopped one; then as above. A patient monitor first waits a bounded time, so that the worker can stop its own processes |
//! | the monitor dies | the kernel kills the worker; the supervisor adopts the remaining processes and sweeps them |

use super::adopt_orphans;
use crate::exit_as::exit_as;
use crate::{
    Exit, ProcessHandle, SessionPaths, become_session_leader, set_process_name,
    sweep_strays_blocking,
};
use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{ForkResult, fork};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Resource, Rlimit, getpid, getppid, pidfd_open, setrlimit};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Maximum time to wait for a killed worker and its descendants. A process left after it hangs in the kernel. The
/// supervisor adopts and sweeps that process, and it must notice the worker's exit in time to fail its calls.
const END_LIMIT: Duration = Duration::from_millis(700);

/// Maximum time for a control group, part of [`END_LIMIT`]. All of its processes are killed at once, so it
/// usually takes milliseconds.
const GROUP_LIMIT: Duration = Duration::from_millis(300);

/// Forks. Returns in the child, which continues as the worker. The parent becomes the monitor and never returns
/// from this function.
///
/// Call it once, in single-threaded stage 0, from the process that the supervisor started, with the control
/// channel as stdin. The kernel kills the worker when the monitor dies. The kernel drops that request if the
/// worker changes its user or group ids or runs a set-id program (prctl(2), `PR_SET_PDEATHSIG`): call
/// [`die_with_parent`] again afterwards.
///
/// # Errors
/// This process has several threads, the supervisor has exited, or a resource is missing.
pub fn split_off_monitor() -> io::Result<()> {
    split_off_monitor_of(None)
}

/// Like [`split_off_monitor`], for a worker whose commands run in a control group. The monitor kills that group
/// before it searches for other descendants.
///
/// # Errors
/// Same as [`split_off_monitor`].
pub fn split_off_monitor_of(session: Option<&SessionPaths>) -> io::Result<()> {
    split_off(session, Patience::default())
}

/// Like [`split_off_monitor`], for a worker that exits by itself when its channel is closed. The monitor waits
/// for `patience` before it kills the worker.
///
/// # Errors
/// Same as [`split_off_monitor`].
pub fn split_off_patient_monitor(patience: Duration) -> io::Result<()> {
    split_off(None, Patience { time: patience, forwards_term: false })
}

/// Like [`split_off_patient_monitor`]. Before it waits, the monitor also sends SIGTERM to the worker, because the
/// supervisor sends it to the monitor only.
///
/// # Errors
/// Same as [`split_off_monitor`].
pub fn split_off_forwarding_monitor(patience: Duration) -> io::Result<()> {
    split_off(None, Patience { time: patience, forwards_term: true })
}

/// Steps of a monitor before it kills its worker.
#[derive(Debug, Clone, Copy, Default)]
struct Patience {
    /// Maximum wait for the worker's own exit.
    time: Duration,
    /// True if the worker gets SIGTERM first.
    forwards_term: bool,
}

fn split_off(session: Option<&SessionPaths>, patience: Patience) -> io::Result<()> {
    require_single_thread()?;
    let before = become_monitor()?;

    // The worker checks by this handle that the monitor still runs. Unlike the parent's process id, it also works
    // inside a new process namespace.
    let monitor = pidfd_open(getpid(), PidfdFlags::empty())?;

    match fork_single_threaded()? {
        ForkResult::Child => {
            die_with_parent()?;
            // A new session detaches the worker and its commands from the daemon's terminal: they can neither
            // read it nor be stopped by it.
            become_session_leader();
            // If the monitor has exited before the request above, no signal comes.
            if is_ready(&monitor)? {
                return Err(io::Error::other("the monitor ended"));
            }

            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
            Ok(())
        }
        ForkResult::Parent { child } => {
            close_from_3();
            // A monitor that cannot watch must not leave a worker behind. The kernel kills the worker when this
            // process exits.
            let exit = watch(child.as_raw().unsigned_abs(), None, session, patience);
            exit_as(exit.unwrap_or(Exit::Code(libc::EXIT_FAILURE)))
        }
    }
}

/// Like [`split_off_monitor_of`], but `split` forks. Its child must ensure that it dies with this process, and
/// must lead its own session. All signals are blocked in the child until [`crate::harden`].
///
/// # Errors
/// Same as [`split_off_monitor`], or an error of `split`.
pub fn split_off_monitor_by<C, E: FnOnce()>(
    session: Option<&SessionPaths>,
    split: impl FnOnce() -> io::Result<ForkSide<C, E>>,
) -> io::Result<C> {
    require_single_thread()?;
    let _before = become_monitor()?;
    match split()? {
        ForkSide::Child(child) => Ok(child),
        ForkSide::Monitor { child, status, at_the_end } => {
            let exit = watch(child, Some(status), session, Patience::default());
            at_the_end();
            exit_as(exit.unwrap_or(Exit::Code(libc::EXIT_FAILURE)))
        }
    }
}

/// Side of the fork in which the function returns.
#[derive(Debug)]
pub enum ForkSide<C, E> {
    /// The new process.
    Child(C),
    /// The calling process, which becomes the monitor.
    Monitor {
        /// The new process, a child of this one. It exits when the worker does.
        child: u32,
        /// Read end of a channel that carries the worker's raw wait status as four bytes, least significant
        /// first. Used if the worker is not the child itself.
        status: OwnedFd,
        /// Called by the monitor last, when no process of the worker is left. The values it owns are kept until
        /// then.
        at_the_end: E,
    },
}

/// Requests TERM on the supervisor's death, adopts orphans and blocks all signals. Returns the previous signal
/// mask.
fn become_monitor() -> io::Result<SigSet> {
    let supervisor = getppid();
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    // If the supervisor has exited before the request, no signal comes.
    if getppid() != supervisor {
        return Err(io::Error::other("the supervisor ended"));
    }

    adopt_orphans()?;

    // Set the name before the fork: the child may run before this process continues. The child sets its own name.
    set_process_name("quack-monitor");

    // From here on signals stay pending. The monitor reads SIGTERM from a descriptor and ignores the signals that
    // a terminal sends to the whole group.
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before))?;

    Ok(before)
}

/// Requests that the kernel kills this process when the thread that started it exits. The caller must check
/// afterwards that its parent is still alive.
///
/// # Errors
/// A system call filter forbids the request.
pub fn die_with_parent() -> io::Result<()> {
    let signal = rustix::process::Signal::KILL;
    Ok(rustix::process::set_parent_process_death_signal(Some(signal))?)
}

pub(crate) fn require_single_thread() -> io::Result<()> {
    if std::fs::read_dir("/proc/self/task")?.count() == 1 {
        return Ok(());
    }
    Err(io::Error::other("a process with several threads cannot be split"))
}

#[expect(unsafe_code, reason = "fork(2) has no safe form")]
fn fork_single_threaded() -> io::Result<ForkResult> {
    // SAFETY: the caller made sure that this is the only thread, so that no lock can be held by a
    // thread that the child lacks; parent and child may go on as if nothing had happened.
    Ok(unsafe { fork() }?)
}

fn watch(
    worker: u32,
    status: Option<OwnedFd>,
    session: Option<&SessionPaths>,
    patience: Patience,
) -> io::Result<Exit> {
    // Dying by the worker's signal must not leave a core file of this process.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    let worker = ProcessHandle::of_child(worker)?;

    wait_for_an_end(&worker)?;
    // A patient monitor lets the worker stop its own processes first.
    if patience.forwards_term {
        worker.signal(Signal::SIGTERM)?;
    }
    if !patience.time.is_zero() {
        poll_once(&mut [PollFd::new(&worker, PollFlags::IN)], Some(patience.time))?;
    }

    worker.signal(Signal::SIGKILL)?;
    poll_once(&mut [PollFd::new(&worker, PollFlags::IN)], Some(END_LIMIT))?;
    let exit = worker.try_reap()?;
    let exit = status.and_then(reported_exit).or(exit);

    if let Some(session) = session {
        // The supervisor removes the rest, now or at its next start.
        session.end_blocking(GROUP_LIMIT).ok();
    }
    // A worker that was not reaped above is still a child here, and the sweep reaps it.
    let _swept = sweep_strays_blocking(&BTreeSet::new(), END_LIMIT);
    Ok(exit.unwrap_or(Exit::Signal(libc::SIGKILL)))
}

/// Reads the worker's exit status from the process above the worker. `None` if that process was killed first.
fn reported_exit(status: OwnedFd) -> Option<Exit> {
    let mut raw = [0; 4];
    // The writer has exited, so this read returns four bytes or the end of file.
    let read = rustix::io::read(&status, &mut raw).ok()?;
    (read == raw.len()).then(|| Exit::of_status(i32::from_le_bytes(raw)))
}

/// Sleeps until the worker has exited, the supervisor's end of the control channel is closed, or SIGTERM arrives:
/// the supervisor has exited or stops the worker.
fn wait_for_an_end(worker: &impl AsFd) -> io::Result<()> {
    let term = SignalFd::with_flags(&SigSet::from(Signal::SIGTERM), SfdFlags::SFD_CLOEXEC)?;
    let stdin = rustix::stdio::stdin();
    let mut watched = [
        // Only the hang-up is polled, so data for the worker does not wake the monitor.
        PollFd::new(&stdin, PollFlags::RDHUP),
        PollFd::new(worker, PollFlags::IN),
        PollFd::new(&term, PollFlags::IN),
    ];
    poll_once(&mut watched, None)
}

fn is_ready(descriptor: &impl AsFd) -> io::Result<bool> {
    let mut watched = [PollFd::new(descriptor, PollFlags::IN)];
    poll_once(&mut watched, Some(Duration::ZERO))?;
    Ok(watched.iter().any(|descriptor| !descriptor.revents().is_empty()))
}

fn poll_once(watched: &mut [PollFd<'_>], limit: Option<Duration>) -> io::Result<()> {
    let limit = limit.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
    loop {
        match poll(watched, limit.as_ref()) {
            Err(rustix::io::Errno::INTR) => (),
            other => return Ok(other.map(|_| ())?),
        }
    }
}

#[expect(unsafe_code, reason = "closing what others own has no safe form")]
fn close_from_3() {
    // SAFETY: the owners of these descriptors belong to the worker's half of the fork. This half never returns to
    // them and drops none of them. musl has no function for this call.
    let _closed = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    // A kernel before 5.9 refuses. Then the monitor keeps a few unused descriptors open.
}
