//! The monitor: a small process between the supervisor and one worker, so that nothing a worker starts
//! outlives the worker, and no worker outlives the supervisor. Split off in the worker's stage 0.
//!
//! It holds only the control channel (descriptor 0, never read) and stderr, adopts the worker's
//! orphans, sleeps until something ends, and ends exactly as its worker did: the supervisor, whose
//! direct child it is, sees the true cause.
//!
//! | what ends | what happens |
//! |---|---|
//! | worker | everything below it is killed; the monitor ends with the same code or signal |
//! | supervisor, or its end of the channel | the worker is killed at once, also a stopped one; then as above. A patient monitor waits a bounded time first, so that the worker can end what it started |
//! | monitor | the kernel kills the worker; what is left becomes the supervisor's, which sweeps |
//!
//! Outside Linux there is no monitor: a worker learns of the supervisor's end from its control channel.

#[cfg(target_os = "linux")]
pub use linux::{
    Split, die_with_parent, split_off_monitor, split_off_monitor_by, split_off_monitor_of,
    split_off_patient_monitor,
};

/// Does nothing here: the kernel offers no such request.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn die_with_parent() -> std::io::Result<()> {
    Ok(())
}

/// Does nothing here: see the file's head.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn split_off_monitor() -> std::io::Result<()> {
    Ok(())
}

/// Does nothing here: see the file's head.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn split_off_monitor_of(_: Option<&crate::SessionPaths>) -> std::io::Result<()> {
    Ok(())
}

/// Does nothing here: see the file's head.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn split_off_patient_monitor(_: std::time::Duration) -> std::io::Result<()> {
    Ok(())
}

#[cfg(target_os = "linux")]
mod linux {
    use crate::harden::adopt_orphans;
    use crate::{
        Exit, ProcessHandle, SessionPaths, become_session_leader, set_process_name,
        sweep_strays_blocking,
    };
    use nix::libc;
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal};
    use nix::sys::signal::{raise, sigaction, sigprocmask};
    use nix::sys::signalfd::{SfdFlags, SignalFd};
    use nix::unistd::{ForkResult, fork};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{PidfdFlags, Resource, Rlimit, getpid, getppid, pidfd_open, setrlimit};
    use std::collections::BTreeSet;
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};
    use std::time::Duration;

    /// Longest time that the end of a killed worker, and of everything below it, is waited for. What
    /// is left after that hangs inside the kernel; the supervisor adopts and sweeps it, and it must
    /// learn of the worker's end in time to fail its calls.
    const END_LIMIT: Duration = Duration::from_millis(700);

    /// The part of it for a control group. All of its processes are killed at once, so it takes milliseconds.
    const GROUP_LIMIT: Duration = Duration::from_millis(300);

    /// Forks: returns in the child, which is the worker from now on. The parent becomes the monitor
    /// and never returns from this function.
    ///
    /// Call it once, in single-threaded stage 0, from the process that the supervisor started, with
    /// the control channel as stdin. The worker is killed by the kernel when the monitor dies. That
    /// request is lost if the worker changes its user or group ids or runs a set-id program (prctl(2),
    /// `PR_SET_PDEATHSIG`): call [`die_with_parent`] again afterwards.
    ///
    /// # Errors
    /// This process has several threads, the supervisor is gone already, or a resource is missing.
    pub fn split_off_monitor() -> io::Result<()> {
        split_off_monitor_of(None)
    }

    /// As [`split_off_monitor`], for a worker whose commands live in a control group: the monitor ends that
    /// too, before it looks for other descendants.
    ///
    /// # Errors
    /// As there.
    pub fn split_off_monitor_of(session: Option<&SessionPaths>) -> io::Result<()> {
        split_off(session, Duration::ZERO)
    }

    /// As [`split_off_monitor`], for a worker that ends by itself when its channel is closed: it has `patience` for
    /// that before it is killed.
    ///
    /// # Errors
    /// As there.
    pub fn split_off_patient_monitor(patience: Duration) -> io::Result<()> {
        split_off(None, patience)
    }

    fn split_off(session: Option<&SessionPaths>, patience: Duration) -> io::Result<()> {
        require_single_thread()?;
        let before = become_monitor()?;
        // The worker asks this handle whether the monitor still lives: unlike a parent's number it
        // also works from inside a new process namespace.
        let monitor = pidfd_open(getpid(), PidfdFlags::empty())?;
        match fork_single_threaded()? {
            ForkResult::Child => {
                die_with_parent()?;
                // No terminal of whoever started the daemon is the worker's, or its commands': they can
                // neither read it nor be stopped by it.
                become_session_leader();
                if is_ready(&monitor)? {
                    return Err(io::Error::other("the monitor ended"));
                }
                sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
                Ok(())
            }
            ForkResult::Parent { child } => {
                close_from_3();
                // A monitor that cannot watch must not leave a worker behind; its own end takes the
                // worker with it.
                let exit = watch(child.as_raw().unsigned_abs(), None, session, patience);
                end_as(exit.unwrap_or(Exit::Code(libc::EXIT_FAILURE)))
            }
        }
    }

    /// As [`split_off_monitor_of`], for a worker that is made in another way: `split` forks, and its
    /// child must see to it that it ends with this process and leads a session of its own. All signals are
    /// blocked in it until [`crate::harden`].
    ///
    /// # Errors
    /// As there, or of `split`.
    pub fn split_off_monitor_by<C, E: FnOnce()>(
        session: Option<&SessionPaths>,
        split: impl FnOnce() -> io::Result<Split<C, E>>,
    ) -> io::Result<C> {
        require_single_thread()?;
        let _before = become_monitor()?;
        match split()? {
            Split::Child(child) => Ok(child),
            Split::Monitor { child, status, at_the_end } => {
                let exit = watch(child, Some(status), session, Duration::ZERO);
                at_the_end();
                end_as(exit.unwrap_or(Exit::Code(libc::EXIT_FAILURE)))
            }
        }
    }

    /// What this process is after it was split.
    #[derive(Debug)]
    pub enum Split<C, E> {
        /// The new process.
        Child(C),
        /// This one, which becomes the monitor.
        Monitor {
            /// The new process, our child. Its end is the worker's.
            child: u32,
            /// Gives the worker's raw wait status as four bytes, least first, if the worker is not the
            /// child itself.
            status: OwnedFd,
            /// What the monitor does last, when nothing of the worker is left. What it owns is held until
            /// then.
            at_the_end: E,
        },
    }

    /// Makes this process one that its supervisor can end and that adopts orphans, and blocks all signals;
    /// gives which were blocked before.
    fn become_monitor() -> io::Result<SigSet> {
        let supervisor = getppid();
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
        if getppid() != supervisor {
            return Err(io::Error::other("the supervisor ended"));
        }
        adopt_orphans()?;
        // Before there is a child, which may be seen working before this process runs again. It names itself.
        set_process_name("quack-monitor");
        // From here on signals wait: the monitor takes SIGTERM from a descriptor, and what a terminal
        // sends to the whole group is not for it.
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before))?;
        Ok(before)
    }

    /// Asks the kernel to kill this process when the thread that started it ends. The caller must
    /// check afterwards that its parent is still alive.
    ///
    /// # Errors
    /// A filter forbids it.
    pub fn die_with_parent() -> io::Result<()> {
        let signal = rustix::process::Signal::KILL;
        Ok(rustix::process::set_parent_process_death_signal(Some(signal))?)
    }

    fn require_single_thread() -> io::Result<()> {
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
        patience: Duration,
    ) -> io::Result<Exit> {
        // Ending by the worker's signal must not leave a core file of this process.
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
        let worker = ProcessHandle::of_child(worker)?;
        wait_for_an_end(&worker)?;
        if !patience.is_zero() {
            poll_once(&mut [PollFd::new(&worker, PollFlags::IN)], Some(patience))?;
        }
        worker.signal(Signal::SIGKILL)?;
        poll_once(&mut [PollFd::new(&worker, PollFlags::IN)], Some(END_LIMIT))?;
        let exit = worker.try_reap()?;
        let exit = status.and_then(told_exit).or(exit);
        if let Some(session) = session {
            // What cannot be removed is left to the supervisor, and to its next start.
            drop(session.end_blocking(GROUP_LIMIT));
        }
        // Without the worker's status in hand it is still a child here, and swept with the rest.
        let _swept = sweep_strays_blocking(&BTreeSet::new(), END_LIMIT);
        Ok(exit.unwrap_or(Exit::Signal(libc::SIGKILL)))
    }

    /// What was told of the worker's end by the process above it. Nothing if that was ended first.
    fn told_exit(status: OwnedFd) -> Option<Exit> {
        let mut raw = [0; 4];
        // It has ended: there are four bytes, or the end.
        let read = rustix::io::read(&status, &mut raw).ok()?;
        (read == raw.len()).then(|| crate::wait::exit_of(i32::from_le_bytes(raw)))
    }

    /// Sleeps until the worker has ended, the supervisor's end of the control channel is closed, or
    /// SIGTERM says that the supervisor is gone or wants an end.
    fn wait_for_an_end(worker: &impl AsFd) -> io::Result<()> {
        let term = SignalFd::with_flags(&SigSet::from(Signal::SIGTERM), SfdFlags::SFD_CLOEXEC)?;
        let stdin = rustix::stdio::stdin();
        let mut watched = [
            // Data that waits for the worker wakes nobody here: only the hang-up is asked for.
            PollFd::new(&stdin, PollFlags::RDHUP),
            PollFd::new(worker, PollFlags::IN),
            PollFd::new(&term, PollFlags::IN),
        ];
        poll_once(&mut watched, None)
    }

    fn is_ready(descriptor: &impl AsFd) -> io::Result<bool> {
        let mut watched = [PollFd::new(descriptor, PollFlags::IN)];
        poll_once(&mut watched, Some(Duration::ZERO))?;
        Ok(watched.iter().any(|one| !one.revents().is_empty()))
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
        // SAFETY: the owners of these descriptors belong to the worker's half of the fork. This half
        // never returns to them and drops none of them.
        let _closed = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
        // A kernel before 5.9 refuses; then the monitor holds a few descriptors that it does not use.
    }

    fn end_as(exit: Exit) -> ! {
        match exit {
            Exit::Code(code) => end_process(code),
            Exit::Signal(number) => {
                if let Ok(signal) = Signal::try_from(number) {
                    // Should it not end us, the convention of shells says the same.
                    let _survived = raise_by_default(signal);
                }
                end_process(128 + number)
            }
        }
    }

    #[expect(unsafe_code, reason = "sigaction(2) has no safe form")]
    fn raise_by_default(signal: Signal) -> nix::Result<()> {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        if signal != Signal::SIGKILL {
            // SAFETY: the default disposition runs no code of ours.
            unsafe { sigaction(signal, &default) }?;
        }
        raise(signal)?;
        sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&SigSet::from(signal)), None)
    }

    #[expect(unsafe_code, reason = "_exit(2) has no safe form")]
    fn end_process(code: i32) -> ! {
        // SAFETY: ends this process without running the exit handlers of the program it split from.
        unsafe { libc::_exit(code) }
    }
}
