//! Ending everything below a process, whatever it does to escape: new groups, new sessions, double
//! forks, ignored signals, endless forking. Used by the supervisor after a monitor died, by the monitor
//! after its worker died, and by [`crate::run`] after a shell ended.
//!
//! The method: stop every process of the tree, again and again until a pass finds no new one (a stopped
//! process cannot fork), then kill them all. Their orphans become our children, so the tree is gone
//! exactly when we have no such child left; until then the whole is repeated.

use crate::handle::to_pid;
use crate::lineage::{Lineage, Member, stat};
use nix::sys::signal::{Signal, kill};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

/// Passes that look for processes forked during the passes before. Each pass stops all it finds, so that a
/// handful ends the fastest forking; what still slips through is met in the next round.
const MAX_PASSES: usize = 64;

/// First and longest pause between two looks at processes that have been killed. Most are gone within
/// half a millisecond; one in the middle of disk work may take long.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_micros(250);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sweep {
    /// Processes that were alive and were killed.
    pub killed: u32,
    /// True if nothing was left at the end. False if the limit was reached or the system cannot tell.
    pub verified_empty: bool,
}

/// Kills and reaps every descendant of this process that is not one of `keep` or below one of them.
/// Returns after `limit` at the latest, plus one pass over the remaining processes.
///
/// For a sub-reaper ([`crate::harden`]) whose child died and left orphans. Call it from the thread that
/// starts children: `keep` must name every direct child that is to live or that somebody else will
/// reap. Blocks; usually for one or two milliseconds.
#[must_use]
pub fn sweep_strays_blocking(keep: &BTreeSet<u32>, limit: Duration) -> Sweep {
    let until = Instant::now() + limit;
    let mut sweeper = Sweeper::new(until);
    let mut pause = FIRST_PAUSE;
    loop {
        let left = sweeper.step(|pid| keep.contains(&pid), |_| true);
        let verified_empty = left.is_ok_and(|left| left == Left::Nothing);
        if verified_empty || until <= Instant::now() {
            return Sweep { killed: sweeper.n_killed(), verified_empty };
        }
        #[expect(clippy::disallowed_methods, reason = "a blocking function, and it says so")]
        std::thread::sleep(pause);
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// What a step of a sweep left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// Processes that were killed and are not reaped yet. Take another step after a pause.
    Dying,
    /// It cannot be known.
    Unknown,
}

/// One sweep in steps, so that a caller can wait in its own way between them.
#[derive(Debug)]
pub(crate) struct Sweeper {
    until: Instant,
    killed: BTreeSet<u32>,
}

impl Sweeper {
    pub(crate) fn new(until: Instant) -> Self {
        Self { until, killed: BTreeSet::new() }
    }

    /// Processes that were alive and were killed by this sweep, for whoever kills some in another way.
    pub(crate) fn killed(&mut self) -> &mut BTreeSet<u32> {
        &mut self.killed
    }

    /// How many these are.
    pub(crate) fn n_killed(&self) -> u32 {
        u32::try_from(self.killed.len()).unwrap_or(u32::MAX)
    }

    /// Reaps what has ended and kills what is a target, among the children of this process that are not
    /// `protected`. A protected child is neither killed nor reaped. Never waits.
    ///
    /// # Errors
    /// The children are not known: no `/proc`, or no descriptor left.
    pub(crate) fn step(
        &mut self,
        protected: impl Fn(u32) -> bool,
        target: impl Fn(u32) -> bool,
    ) -> io::Result<Left> {
        let targets = living_strays(protected, target)?;
        if targets.is_empty() {
            return Ok(Left::Nothing);
        }
        self.freeze_and_kill(&targets)?;
        Ok(Left::Dying)
    }

    /// Kills `roots`, children of this process that nobody has reaped, and everything below them.
    ///
    /// # Errors
    /// As [`Sweeper::step`].
    pub(crate) fn freeze_and_kill(&mut self, roots: &[u32]) -> io::Result<()> {
        let mut frozen = BTreeSet::new();
        for _ in 0..MAX_PASSES {
            let before = frozen.len();
            for member in Lineage::now()?.descendants(roots) {
                // Under another parent than before it was not frozen as that one.
                if frozen.insert(member) {
                    send(member, Signal::SIGSTOP);
                }
            }
            if frozen.len() == before || self.until <= Instant::now() {
                break;
            }
        }
        for member in frozen {
            if send(member, Signal::SIGKILL) {
                self.killed.insert(member.pid);
            }
        }
        Ok(())
    }
}

/// Children of this process that are not `protected`, are a `target` and still run. Those that have ended
/// are reaped, target or not: an orphan's exit status interests nobody.
///
/// # Errors
/// The children are not known: no `/proc`, or no descriptor left.
pub(crate) fn living_strays(
    protected: impl Fn(u32) -> bool,
    target: impl Fn(u32) -> bool,
) -> io::Result<Vec<u32>> {
    loop {
        let mut strays = Lineage::now()?.adopted()?;
        strays.retain(|&pid| !protected(pid));
        let n_before = strays.len();
        strays.retain(|&pid| !reap(pid));
        let reaped_some = strays.len() < n_before;
        strays.retain(|&pid| target(pid));
        // What ended after the list was read left us its children, which the list does not show.
        if !strays.is_empty() || !reaped_some {
            return Ok(strays);
        }
    }
}

/// Reaps one child if it has ended. Never asks for "any child": others wait for theirs.
fn reap(pid: u32) -> bool {
    let Ok(pid) = to_pid(pid) else { return true };
    match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
        Ok(status) => status.is_some(),
        Err(_) => true,
    }
}

/// Signals a member if it is still the process that was found. Says whether it was still running.
pub(crate) fn send(member: Member, signal: Signal) -> bool {
    let this = std::process::id();
    if member.parent == this {
        // Only this thread reaps it, so until then the number is its own.
        return is_running_below(member, this).is_some_and(|is_running| {
            let is_sent = i32::try_from(member.pid)
                .is_ok_and(|pid| kill(nix::unistd::Pid::from_raw(pid), signal).is_ok());
            is_sent && is_running
        });
    }
    send_by_handle(member, signal, this)
}

#[cfg(target_os = "linux")]
fn send_by_handle(member: Member, signal: Signal, this: u32) -> bool {
    use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

    // The handle first, then the look: if the number belongs to a stranger by now, the handle is the
    // stranger's and the look shows another parent. Without a handle (no descriptor left) nothing is
    // sent: once its parent is dead the process is our child, and needs none.
    let Ok(pid) = to_pid(member.pid) else { return false };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    let signal = rustix::process::Signal::from_named_raw(signal as i32);
    is_running_below(member, this).is_some_and(|is_running| {
        signal.is_some_and(|signal| pidfd_send_signal(&handle, signal).is_ok()) && is_running
    })
}

#[cfg(not(target_os = "linux"))]
fn send_by_handle(_: Member, _: Signal, _: u32) -> bool {
    false
}

/// Whether it runs; `None` if it is gone from where it was found, unless we adopted it since.
fn is_running_below(member: Member, this: u32) -> Option<bool> {
    let now = stat(member.pid).ok()?;
    (now.parent == member.parent || now.parent == this).then_some(!now.has_ended)
}
