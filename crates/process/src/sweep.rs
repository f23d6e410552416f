//! Kills all descendants of a process, including those that try to escape by new groups, new sessions, double forks,
//! ignored signals or endless forking. Used by the supervisor after a monitor died, by the monitor after its worker
//! died, and by [`crate::run`] after a shell exited.
//!
//! The sweep stops every process of the tree and repeats this until a pass finds no new process: a stopped process
//! cannot fork. Then it kills them all. Their orphans become children of this process, so the tree is gone when no
//! such child is left. Until then the sweep starts over.

use crate::pid::to_pid;
use crate::platform::signal_if;
use crate::process_tree::{ProcessTree, TreeProcess, stat};
use nix::sys::signal::{Signal, kill};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

/// Maximum number of passes that look for processes forked during earlier passes. Each pass stops all processes it
/// finds, so a few passes end even the fastest forking. The next round catches the rest.
const MAX_PASSES: usize = 64;

/// Shortest and longest pause between two checks of killed processes. Most exit within 0.5 ms. A process in the
/// middle of disk I/O may take much longer.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_micros(250);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Result of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepReport {
    /// Processes that were alive and were killed.
    pub killed: u32,
    /// True if no process was left. False if the time limit passed or the system cannot list children.
    pub verified_empty: bool,
}

/// Kills and reaps every descendant of this process, except the processes in `keep` and their descendants. Returns
/// after at most `limit` plus one pass over the remaining processes.
///
/// For a sub-reaper ([`crate::harden`]) whose child died and left orphans. Call it from the thread that starts
/// children. `keep` must contain every direct child that continues to run or that another caller reaps. Blocks,
/// usually for 1 to 2 ms.
#[must_use]
pub fn sweep_strays_blocking(keep: &BTreeSet<u32>, limit: Duration) -> SweepReport {
    let until = Instant::now() + limit;
    let mut sweeper = Sweeper::new(until);
    let mut pause = FIRST_PAUSE;
    loop {
        let left = sweeper.step(|pid| keep.contains(&pid), |_| true);
        let verified_empty = left.is_ok_and(|left| left == SweepProgress::Nothing);
        if verified_empty || until <= Instant::now() {
            return SweepReport { killed: sweeper.n_killed(), verified_empty };
        }
        #[expect(clippy::disallowed_methods, reason = "a blocking function, and it says so")]
        std::thread::sleep(pause);
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Processes left after one step of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SweepProgress {
    Nothing,
    /// Some processes were killed and are not reaped yet. Take another step after a pause.
    Dying,
    /// The children cannot be listed.
    Unknown,
}

/// A sweep in steps, so that the caller chooses how to wait between them.
#[derive(Debug)]
pub(crate) struct Sweeper {
    until: Instant,
    killed: BTreeSet<u32>,
}

impl Sweeper {
    pub(crate) fn new(until: Instant) -> Self {
        Self { until, killed: BTreeSet::new() }
    }

    /// Returns the processes that this sweep killed while they were running. Callers that kill in
    /// another way add theirs.
    pub(crate) fn killed(&mut self) -> &mut BTreeSet<u32> {
        &mut self.killed
    }

    pub(crate) fn n_killed(&self) -> u32 {
        u32::try_from(self.killed.len()).unwrap_or(u32::MAX)
    }

    /// Reaps the exited children that are not `protected`, and kills those that are a `target`, with their
    /// descendants. A protected child is neither killed nor reaped. Never waits.
    ///
    /// # Errors
    /// The children cannot be listed: `/proc` is not mounted, or no descriptor is left.
    pub(crate) fn step(
        &mut self,
        protected: impl Fn(u32) -> bool,
        target: impl Fn(u32) -> bool,
    ) -> io::Result<SweepProgress> {
        let targets = living_strays(protected, target)?;
        if targets.is_empty() {
            return Ok(SweepProgress::Nothing);
        }
        self.freeze_and_kill(&targets)?;
        Ok(SweepProgress::Dying)
    }

    /// Kills `roots`, which are unreaped children of this process, and all their descendants.
    ///
    /// # Errors
    /// As [`Sweeper::step`].
    pub(crate) fn freeze_and_kill(&mut self, roots: &[u32]) -> io::Result<()> {
        let mut frozen = BTreeSet::new();
        for _ in 0..MAX_PASSES {
            let before = frozen.len();
            for member in ProcessTree::now()?.descendants(roots) {
                // A process under another parent counts as new: it was not stopped under that parent.
                if frozen.insert(member) {
                    send(member, Signal::SIGSTOP);
                }
            }
            if frozen.len() == before || self.until <= Instant::now() {
                break;
            }
        }

        // After all are stopped, so that none can fork while others are killed.
        for member in frozen {
            if send(member, Signal::SIGKILL) {
                self.killed.insert(member.pid);
            }
        }
        Ok(())
    }
}

/// Returns the running children of this process that are not `protected` and are a `target`. Reaps exited children,
/// target or not: the exit status of an orphan is not used.
///
/// # Errors
/// The children cannot be listed: `/proc` is not mounted, or no descriptor is left.
pub(crate) fn living_strays(
    protected: impl Fn(u32) -> bool,
    target: impl Fn(u32) -> bool,
) -> io::Result<Vec<u32>> {
    loop {
        let mut strays = ProcessTree::now()?.adopted()?;
        strays.retain(|&pid| !protected(pid));
        let n_before = strays.len();
        strays.retain(|&pid| !reap(pid));
        let reaped_some = strays.len() < n_before;
        strays.retain(|&pid| target(pid));
        // A process that exited after the list was read left its children to this process. The list does not contain
        // them.
        if !strays.is_empty() || !reaped_some {
            return Ok(strays);
        }
    }
}

/// Reaps one child if it has exited. Never waits for "any child", because other code waits for its own children.
fn reap(pid: u32) -> bool {
    let Ok(pid) = to_pid(pid) else { return true };
    match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
        Ok(status) => status.is_some(),
        Err(_) => true,
    }
}

/// Signals a process if it is still the process that was found. Returns true if it was running and the signal was
/// sent.
pub(crate) fn send(member: TreeProcess, signal: Signal) -> bool {
    let this = std::process::id();
    if member.parent == this {
        // Only this thread reaps it, so the kernel cannot reuse the number before.
        return is_running_below(member, this).is_some_and(|is_running| {
            let is_sent = i32::try_from(member.pid)
                .is_ok_and(|pid| kill(nix::unistd::Pid::from_raw(pid), signal).is_ok());
            is_sent && is_running
        });
    }
    // If the number was reused, the handle refers to the other process, and the check sees a different parent. Without a
    // handle nothing is sent: once its parent is dead, the process is a child of this one and needs no handle.
    let Ok(pid) = to_pid(member.pid) else { return false };
    let mut is_running = false;
    let is_sent = signal_if(pid, signal, || {
        let found = is_running_below(member, this);
        is_running = found == Some(true);
        found.is_some()
    });
    is_sent && is_running
}

/// Returns whether the process runs. `None` if it exited or has another parent, unless this process adopted it.
fn is_running_below(member: TreeProcess, this: u32) -> Option<bool> {
    let now = stat(member.pid).ok()?;
    (now.parent == member.parent || now.parent == this).then_some(!now.has_ended)
}
