//! Runs one command from start to end. Called by the worker's tools.
//!
//! A command is done when its shell has exited, not when its pipes close: a background process may hold them forever.
//! Then the remaining processes are stopped, and the rest of the output is read.

use crate::input::InputWriter;
use crate::memory_watch::{MIN_PAUSE, MemoryWatch};
use crate::output::OutputReader;
use crate::shell::{Input, Shell, reap_ended_orphans};
use crate::sweep::{FIRST_PAUSE, LONGEST_PAUSE, SweepProgress, Sweeper};
use crate::{Command, EndedBy, Finished, Holder, LaunchError};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until, timeout_at};

/// Maximum grace, and maximum deadline of a command without a terminal. Also keeps sums of times in range.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Interval for reaping exited orphans while a command runs.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// Interval for counting the processes of a command if the kernel does not count them. A current machine starts a few
/// thousand processes in that time.
const COUNT_INTERVAL: Duration = Duration::from_millis(250);

/// Counting takes at most 1/20 of the time.
const COUNT_SHARE: u32 = 20;

/// Interval for checking the processes that got TERM, once the shell has exited.
const GRACE_INTERVAL: Duration = Duration::from_millis(10);

/// Background processes may still forward the shell's last output (`exec > >(tee log)`). They are killed after this
/// much silence, or when the limit has passed.
const SETTLE_QUIET: Duration = Duration::from_millis(50);
const SETTLE_LIMIT: Duration = Duration::from_millis(500);

/// An exiting program closes its output shortly before its exit (`tee` does so explicitly). A process that closed the
/// output has this long to exit without being counted as a background process.
const LEAVE_LIMIT: Duration = Duration::from_millis(20);
const LEAVE_INTERVAL: Duration = Duration::from_millis(1);

/// Reading ends after this much silence. Without a holder, the pipes end at once.
const DRAIN_QUIET: Duration = Duration::from_millis(100);

/// Time limit for the work after a command's end: killed processes and remaining output. Only processes that hang in
/// the kernel or run with other credentials can use it up. Together with the grace it must stay below
/// [`quackd_protocol::limits::DEADLINE_SLACK`].
const END_LIMIT: Duration = Duration::from_secs(2);

/// Maximum number of survivors that are counted.
const MAX_SURVIVORS: usize = 1024;

/// Minimum time to wait for the disk of the spill file, even if the limit is used up.
const MIN_CLOSE_LIMIT: Duration = Duration::from_millis(200);

/// Runs a command to its end, and kills all processes that it started.
///
/// The command leads its own process group, reads its `input` or `/dev/null`, and is never blocked by long output: the two ends of
/// each stream are kept and the middle is counted. At the deadline or when canceled, it gets TERM, and KILL after the
/// grace. Returns at most about 2 s after that.
///
/// The exceptions: a command waits for the reader of its `flow`, and for the disk of its spill file. A command on a
/// terminal gets HUP in place of TERM.
///
/// This process must be a sub-reaper ([`crate::harden`]) to find processes that left the group. Children that its
/// main thread started in other ways count as orphans: a worker starts processes only here.
///
/// The first poll of the future launches the command, or fails to, before it waits for anything. Dropping the future
/// kills all processes at once and reaps them in the background. Needs a tokio runtime with I/O and time.
///
/// # Errors
/// See [`LaunchError`].
pub async fn run(mut command: Command) -> Result<Finished, LaunchError> {
    if command.cancel.is_cancelled() {
        return Err(LaunchError::Aborted);
    }

    let begin = Instant::now();
    let pipe = if command.input.is_some() { Input::Pipe } else { Input::Nothing };
    // Before the launch, because the kernel may kill the command's first process.
    let mut memory = MemoryWatch::new(&command.limits, command.memory_group());
    let (mut shell, stdin, ends) = Shell::launch(&command, pipe)?;
    memory.note_start(&shell);
    // Kept while the shell runs: a program that closes its terminal may open it again. Without this handle, the output
    // ends when the last process of the command has exited.
    let terminal = command.terminal.take();
    if terminal.is_none() {
        command.deadline = command.deadline.min(LONGEST);
    }
    let explain = |error| LaunchError::explain(error, &command);

    let mut input = match (stdin, &command.input) {
        (Some(pipe), Some(input)) => Some(InputWriter::new(pipe, input.clone()).map_err(explain)?),
        _ => None,
    };
    let (spill, live, flow) = (command.spill.clone(), command.live.clone(), command.flow.clone());
    let mut output = OutputReader::new(ends, spill, live, flow).map_err(explain)?;

    let ended_by = watch(&mut shell, &mut output, &mut input, &mut memory, &command, begin).await;
    // Processes that outlive the command read the end of the input.
    drop((input, terminal));
    output.lose_patience();

    let (mut stopped, mut held) = (0, None);
    if ended_by == EndedBy::Itself {
        held = settle(&mut shell, &mut output).await;
        dismiss(&mut shell, &mut output, command.leave.min(LONGEST)).await;
    } else {
        stopped = stop(&mut shell, &mut output, &command, ended_by).await;
    }

    let end = Instant::now() + END_LIMIT;
    let (n_killed, survivors) = end_strays(&mut shell, &mut output, end).await;
    output.drain(DRAIN_QUIET, end).await;

    // A remaining holder is not one of the command's processes, because those are dead.
    let output_open = held.is_some() || !output.is_at_end();
    // Before the shell leaves the registry: the next command must not be blamed.
    memory.note_end(&shell, &command.limits);
    let (exit, usage) = shell.reap().map_err(LaunchError::StatusLost)?;
    let ceiling = memory.ceiling(ended_by, exit, &command.limits);
    let left = end.saturating_duration_since(Instant::now());
    let (stdout, stderr, spill) = output.finish(left.max(MIN_CLOSE_LIMIT)).await;
    let background_ended = if ended_by == EndedBy::Itself { n_killed } else { 0 };
    let duration = begin.elapsed();

    Ok(Finished {
        exit,
        usage,
        ended_by,
        ceiling,
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

/// Reads the output until the shell has exited or must be stopped.
async fn watch(
    shell: &mut Shell,
    output: &mut OutputReader,
    input: &mut Option<InputWriter>,
    memory: &mut MemoryWatch,
    command: &Command,
    begin: Instant,
) -> EndedBy {
    let deadline = begin.checked_add(command.deadline);
    let mut reaping = interval_at(begin + REAP_INTERVAL, REAP_INTERVAL);
    // After missed ticks, one check reaps all orphans.
    reaping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next_count = begin + COUNT_INTERVAL;
    let mut next_check = begin + MIN_PAUSE;

    loop {
        let is_fed = input.as_ref().is_some_and(InputWriter::is_open);
        let feeding = async {
            match input {
                Some(input) => input.pump().await,
                None => std::future::pending().await,
            }
        };

        tokio::select! {
            // In this order, so that a command that has ended by itself is not reported as stopped.
            biased;
            () = shell.exited() => return EndedBy::Itself,
            () = command.cancel.cancelled() => return EndedBy::Abort,
            () = passed(deadline) => return EndedBy::Deadline,
            _ = reaping.tick() => reap_ended_orphans(),
            () = sleep_until(next_count) => {
                let counted = Instant::now();
                if shell.exceeds(command.limits.processes) {
                    return EndedBy::Processes;
                }
                // Counting a large tree must not take most of this process's time.
                next_count = Instant::now() + COUNT_INTERVAL.max(counted.elapsed() * COUNT_SHARE);
            }
            () = sleep_until(next_check) => match memory.check(shell).await {
                Some(pause) => next_check = Instant::now() + pause,
                None => return EndedBy::Memory,
            },
            () = output.pump(), if !output.is_at_end() => (),
            () = feeding, if is_fed => (),
        }
    }
}

/// Resolves at a time, or never.
async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Lets background processes finish that only forward output. If a pipe is still held after that, returns the known
/// holders.
async fn settle(shell: &mut Shell, output: &mut OutputReader) -> Option<Vec<Holder>> {
    if !output.is_at_end() && shell.has_strays() {
        output.drain(SETTLE_QUIET, Instant::now() + SETTLE_LIMIT).await;
        let pipes = output.pipes();
        // Processes that have only the terminal are as usual as its background jobs.
        if !pipes.is_empty() {
            return Some(shell.holders(&pipes));
        }
    }

    let until = Instant::now() + LEAVE_LIMIT;
    while output.is_at_end() && shell.has_strays() && Instant::now() < until {
        sleep(LEAVE_INTERVAL).await;
    }
    None
}

/// Sends TERM to the processes that outlive the command, and waits for the grace.
async fn dismiss(shell: &mut Shell, output: &mut OutputReader, grace: Duration) {
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

/// Stops the command: TERM, the grace, KILL. The grace also applies to processes that outlive the shell. Returns the
/// number of processes found.
async fn stop(
    shell: &mut Shell,
    output: &mut OutputReader,
    command: &Command,
    ended_by: EndedBy,
) -> u32 {
    let now = Instant::now();
    let abort_grace = command.abort_grace.min(LONGEST);
    let (grace, mut may_hurry) = match ended_by {
        EndedBy::Abort => (abort_grace, false),
        // A command that forks or grows without end gets no time to go on.
        EndedBy::Processes | EndedBy::Memory => (Duration::ZERO, false),
        EndedBy::Deadline | EndedBy::Itself => (command.grace.min(LONGEST), true),
    };

    let mut until = now + grace;
    let mut has_shell = true;

    // Reading no longer waits for the disk, which would use up the grace.
    output.hurry();
    let n_found = shell.terminate();
    while has_shell || shell.has_strays() {
        tokio::select! {
            biased;
            () = sleep_until(until) => break,
            () = shell.exited(), if has_shell => has_shell = false,
            // Only once: a canceled token stays canceled.
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

/// Waits for the shell, which has exited or was killed, then kills and reaps the remaining processes. Returns how
/// many were still running, and how many are left; `None` if that is unknown.
async fn end_strays(
    shell: &mut Shell,
    output: &mut OutputReader,
    end: Instant,
) -> (u32, Option<u32>) {
    // If the shell hangs in the kernel, continue without it.
    let has_ended = timeout_at(end, shell.exited()).await.is_ok();

    shell.note_end();
    let mut sweeper = Sweeper::new(end.into_std());
    let mut pause = FIRST_PAUSE;
    let mut left = shell.sweep(&mut sweeper);
    while left == SweepProgress::Dying && Instant::now() < end {
        tokio::select! {
            () = sleep(pause) => (),
            () = output.pump(), if !output.is_at_end() => (),
        }
        pause = LONGEST_PAUSE.min(pause * 2);
        left = shell.sweep(&mut sweeper);
    }

    let survivors = match left {
        _ if !shell.knows_all() => None,
        SweepProgress::Unknown => None,
        SweepProgress::Nothing if has_ended => Some(0),
        // A process that is gone at this last check only exited late.
        SweepProgress::Nothing | SweepProgress::Dying => {
            u32::try_from(shell.processes(MAX_SURVIVORS).len()).ok()
        }
    };
    (sweeper.n_killed(), survivors)
}
