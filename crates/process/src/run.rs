//! Running one command from start to end. Called by the worker's tools.
//!
//! A command is done when its shell has ended, not when its pipes close: a background process may hold
//! them for ever. Then everything that it left is ended, and what is still in the pipes is read.

use crate::output::Output;
use crate::shell::{Shell, reap_ended_orphans};
use crate::sweep::{FIRST_PAUSE, LONGEST_PAUSE, Left, Sweeper};
use crate::{Command, EndedBy, Finished, Holder, LaunchError};
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until, timeout_at};

/// Longest deadline and grace. Also keeps sums of times in range.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// How often orphans that ended by themselves are reaped while a command runs.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// How often the processes of a command are counted where the kernel does not do it. A machine of today
/// starts a few thousand in that time.
const COUNT_INTERVAL: Duration = Duration::from_millis(250);

/// It takes at most one part in so many of the time.
const COUNT_SHARE: u32 = 20;

/// How often the processes that TERM was sent to are looked at once the shell has ended.
const GRACE_INTERVAL: Duration = Duration::from_millis(10);

/// Background processes may still be handing on the shell's last output (`exec > >(tee log)`): they are
/// killed after this much silence, or when the limit has passed.
const SETTLE_QUIET: Duration = Duration::from_millis(50);
const SETTLE_LIMIT: Duration = Duration::from_millis(500);

/// A program that ends closes its output a moment before (`tee` does so itself): who closed it has this
/// long to leave without being counted as a background process.
const LEAVE_LIMIT: Duration = Duration::from_millis(20);
const LEAVE_INTERVAL: Duration = Duration::from_millis(1);

/// The pipes are left after this much silence. With nobody left to hold them they end at once.
const DRAIN_QUIET: Duration = Duration::from_millis(100);

/// Time for all that follows the end of a command: processes that were killed, output that is on its
/// way. Only what hangs inside the kernel or runs with foreign credentials can use it up. With the grace
/// it must stay below [`quackd_protocol::limits::DEADLINE_SLACK`].
const END_LIMIT: Duration = Duration::from_secs(2);

/// Survivors that are counted.
const MAX_SURVIVORS: usize = 1024;

/// Time that the spill file's disk gets at the least, also when the limit is used up.
const MIN_CLOSE_LIMIT: Duration = Duration::from_millis(200);

/// Runs a command to its end, and ends everything that it started.
///
/// The command leads a process group of its own, reads `/dev/null`, and is never blocked by its output:
/// of each stream the two ends are kept and the middle is counted. At the deadline or when cancelled it
/// is sent TERM, after the grace KILL. Returns at most about two seconds after that.
///
/// This process must be a sub-reaper ([`crate::harden`]) for processes to be found that left the group.
/// Children that its main thread started in other ways are then taken for orphans: a worker starts
/// processes only here.
///
/// The command is launched, or fails to be, when the future is polled first, before that waits for anything.
/// The future may be dropped at any time: everything is killed at once, and reaped in the background. Needs
/// a tokio runtime with I/O and time.
///
/// # Errors
/// See [`LaunchError`].
pub async fn run(command: Command) -> Result<Finished, LaunchError> {
    if command.cancel.is_cancelled() {
        return Err(LaunchError::Aborted);
    }
    let begin = Instant::now();
    let (shell, stdout, stderr) = Shell::launch(&command)?;
    let mut output = Output::new(
        stdout,
        stderr,
        command.spill.clone(),
        command.live.clone(),
        command.flow.clone(),
    )
    .map_err(|error| LaunchError::explain(error, Path::new(&command.program), &command.cwd))?;
    let ended_by = watch(&shell, &mut output, &command, begin).await;
    output.lose_patience();
    let (mut stopped, mut held) = (0, None);
    if ended_by == EndedBy::Itself {
        held = settle(&shell, &mut output).await;
        dismiss(&shell, &mut output, command.leave.min(LONGEST)).await;
    } else {
        stopped = stop(&shell, &mut output, &command, ended_by).await;
    }
    let end = Instant::now() + END_LIMIT;
    let (n_killed, survivors) = end_strays(&shell, &mut output, end).await;
    output.drain(DRAIN_QUIET, end).await;
    // Whoever holds it still is none of the command's: they are gone.
    let output_open = held.is_some() || !output.is_at_end();
    let (exit, usage) = shell.reap().map_err(LaunchError::StatusLost)?;
    let left = end.saturating_duration_since(Instant::now());
    let (stdout, stderr, spill) = output.finish(left.max(MIN_CLOSE_LIMIT)).await;
    let background_ended = if ended_by == EndedBy::Itself { n_killed } else { 0 };
    let duration = begin.elapsed();
    Ok(Finished {
        exit,
        usage,
        ended_by,
        stdout,
        stderr,
        background_ended,
        stopped,
        is_gone: survivors == Some(0),
        survivors: survivors.unwrap_or(0),
        output_open,
        output_held_by: held.unwrap_or_default(),
        duration,
        spill,
    })
}

/// Reads the output until the shell has ended, or must be ended.
async fn watch(shell: &Shell, output: &mut Output, command: &Command, begin: Instant) -> EndedBy {
    let deadline = begin + command.deadline.min(LONGEST);
    let mut reaping = interval_at(begin + REAP_INTERVAL, REAP_INTERVAL);
    reaping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next_count = begin + COUNT_INTERVAL;
    loop {
        tokio::select! {
            biased;
            () = shell.exited() => return EndedBy::Itself,
            () = command.cancel.cancelled() => return EndedBy::Abort,
            () = sleep_until(deadline) => return EndedBy::Deadline,
            _ = reaping.tick() => reap_ended_orphans(),
            () = sleep_until(next_count) => {
                let counted = Instant::now();
                if shell.exceeds(command.limits.processes) {
                    return EndedBy::Processes;
                }
                // To count a large tree must not become the work of this process.
                next_count = Instant::now() + COUNT_INTERVAL.max(counted.elapsed() * COUNT_SHARE);
            }
            () = output.pump(), if !output.is_at_end() => (),
        }
    }
}

/// Lets background processes that only hand on output finish. If the output is still held after that, says by
/// whom, as far as it is known.
async fn settle(shell: &Shell, output: &mut Output) -> Option<Vec<Holder>> {
    if !output.is_at_end() && shell.has_strays() {
        output.drain(SETTLE_QUIET, Instant::now() + SETTLE_LIMIT).await;
        if !output.is_at_end() {
            return Some(shell.holders(&output.pipes()));
        }
    }
    let until = Instant::now() + LEAVE_LIMIT;
    while output.is_at_end() && shell.has_strays() && Instant::now() < until {
        sleep(LEAVE_INTERVAL).await;
    }
    None
}

/// Asks what outlives the command to end, and gives it time for that.
async fn dismiss(shell: &Shell, output: &mut Output, grace: Duration) {
    if grace.is_zero() || !shell.has_strays() {
        return;
    }
    shell.terminate();
    let until = Instant::now() + grace;
    while shell.has_strays() && Instant::now() < until {
        tokio::select! {
            () = sleep(GRACE_INTERVAL) => (),
            () = output.pump(), if !output.is_at_end() => (),
        }
    }
}

/// Ends the command: TERM, the grace, KILL. The grace also belongs to what outlives the shell. Returns how
/// many processes there were.
async fn stop(shell: &Shell, output: &mut Output, command: &Command, ended_by: EndedBy) -> u32 {
    let now = Instant::now();
    let abort_grace = command.abort_grace.min(LONGEST);
    let (grace, mut may_hurry) = match ended_by {
        EndedBy::Abort => (abort_grace, false),
        // What forks without end gets no time for more.
        EndedBy::Processes => (Duration::ZERO, false),
        EndedBy::Deadline | EndedBy::Itself => (command.grace.min(LONGEST), true),
    };
    let mut until = now + grace;
    let mut has_shell = true;
    output.hurry();
    let n_found = shell.terminate();
    while has_shell || shell.has_strays() {
        tokio::select! {
            biased;
            () = sleep_until(until) => break,
            () = shell.exited(), if has_shell => has_shell = false,
            () = command.cancel.cancelled(), if may_hurry => {
                may_hurry = false;
                until = until.min(Instant::now() + abort_grace);
            }
            () = sleep(GRACE_INTERVAL), if !has_shell => (),
            () = output.pump(), if !output.is_at_end() => (),
        }
    }
    shell.kill();
    n_found
}

/// Waits for the shell, which has ended or was killed, then kills and reaps what it left behind. Returns
/// how many processes were still alive, and how many are left; `None` if that cannot be known.
async fn end_strays(shell: &Shell, output: &mut Output, end: Instant) -> (u32, Option<u32>) {
    // If it hangs in the kernel the answer goes out without it.
    let has_ended = timeout_at(end, shell.exited()).await.is_ok();
    shell.note_end();
    let mut sweeper = Sweeper::new(end.into_std());
    let mut pause = FIRST_PAUSE;
    let mut left = shell.sweep(&mut sweeper);
    while left == Left::Dying && Instant::now() < end {
        tokio::select! {
            () = sleep(pause) => (),
            () = output.pump(), if !output.is_at_end() => (),
        }
        pause = LONGEST_PAUSE.min(pause * 2);
        left = shell.sweep(&mut sweeper);
    }
    let survivors = match left {
        _ if !cfg!(target_os = "linux") => None,
        Left::Unknown => None,
        Left::Nothing if has_ended => Some(0),
        // What is not there any more at this last look was only late.
        Left::Nothing | Left::Dying => u32::try_from(shell.processes(MAX_SURVIVORS).len()).ok(),
    };
    (sweeper.n_killed(), survivors)
}
