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
//! | supervisor, or its end of the channel | the worker is killed at once, also a stopped one; then as above |
//! | monitor | the kernel kills the worker; what is left becomes the supervisor's, which sweeps |
//!
//! Outside Linux there is no monitor: a worker learns of the supervisor's end from its control channel.

#[cfg(target_os = "linux")]
pub use linux::{die_with_parent, split_off_monitor};

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

#[cfg(target_os = "linux")]
mod linux {
    use crate::harden::adopt_orphans;
    use crate::{Exit, ProcessHandle, set_process_name, sweep_strays_blocking};
    use nix::libc;
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal};
    use nix::sys::signal::{raise, sigaction, sigprocmask};
    use nix::sys::signalfd::{SfdFlags, SignalFd};
    use nix::unistd::{ForkResult, fork};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{PidfdFlags, Resource, Rlimit, getpid, getppid, pidfd_open, setrlimit};
    use std::collections::BTreeSet;
    use std::convert::Infallible;
    use std::io;
    use std::os::fd::AsFd;
    use std::time::Duration;

    /// Longest time that the end of a killed worker, and of everything below it, is waited for. What
    /// is left after that hangs inside the kernel; the supervisor adopts and sweeps it, and it must
    /// learn of the worker's end in time to fail its calls.
    const END_LIMIT: Duration = Duration::from_millis(700);

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
        require_single_thread()?;
        let supervisor = getppid();
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
        if getppid() != supervisor {
            return Err(io::Error::other("the supervisor ended"));
        }
        adopt_orphans()?;
        // The worker asks this handle whether the monitor still lives: unlike a parent's number it
        // also works from inside a new process namespace.
        let monitor = pidfd_open(getpid(), PidfdFlags::empty())?;
        // From here on signals wait: the monitor takes SIGTERM from a descriptor, and what a terminal
        // sends to the whole group is not for it.
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before))?;
        match fork_single_threaded()? {
            ForkResult::Child => {
                die_with_parent()?;
                if is_ready(&monitor)? {
                    return Err(io::Error::other("the monitor ended"));
                }
                sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
                Ok(())
            }
            ForkResult::Parent { child } => {
                let worker = child.as_raw().unsigned_abs();
                // A monitor that cannot watch must not leave a worker behind; its own end takes the
                // worker with it.
                let Err(_) = watch(worker);
                end_process(libc::EXIT_FAILURE)
            }
        }
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

    fn watch(worker: u32) -> io::Result<Infallible> {
        close_from_3();
        set_process_name("quack-monitor");
        // Ending by the worker's signal must not leave a core file of this process.
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
        let worker = ProcessHandle::of_child(worker)?;
        wait_for_an_end(&worker)?;
        worker.signal(Signal::SIGKILL)?;
        poll_once(&mut [PollFd::new(&worker, PollFlags::IN)], Some(END_LIMIT))?;
        let exit = worker.try_reap()?;
        // Without the worker's status in hand it is still a child here, and swept with the rest.
        let _swept = sweep_strays_blocking(&BTreeSet::new(), END_LIMIT);
        end_as(exit.unwrap_or(Exit::Signal(libc::SIGKILL)))
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
