//! The answer text of a finished command: both streams, a cut in the middle of long output, and the
//! lines that say how it ended.

use crate::Output;
use crate::bounds::seconds;
use crate::plain;
use crate::truncate::TRUNCATED;
use quackd_process::{Captured, EndedBy, Exit, Finished, Holder, Spilled, TAIL_BYTES};
use quackd_protocol::denial::Denial;
use quackd_protocol::limits::{MAX_OUTPUT_BYTES, OUTPUT_HALF_BYTES};
use quackd_protocol::worker::{MAX_LISTED, ToolReport};
use std::time::Duration;

/// Most holders of an output that a text names.
const MAX_NAMED: usize = 3;

const _: () = assert!(
    OUTPUT_HALF_BYTES + plain::MAX_SEQUENCE + 4 <= TAIL_BYTES,
    "behind the lead is enough to show"
);

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) finished: Finished,
    /// The time that it was given.
    pub(crate) limit: Duration,
    /// Processes that it could have at the same time.
    pub(crate) processes: u32,
    /// What is likely to have been denied to it.
    pub(crate) denials: Vec<Denial>,
    /// The line about that.
    pub(crate) denied: Option<String>,
}

/// Writes the answer. The order of the lines at its end is part of the wire; the exit code is always
/// the last one.
pub(crate) fn compose(ending: Ending) -> Output {
    let Ending { finished, limit, processes, denials, denied } = ending;
    let Shown { mut text, truncated } = show(&finished);
    let mut closing = String::new();
    if truncated {
        text.push('\n');
        text.push_str(TRUNCATED);
        // A client that streams the output has all of it.
        let n_bytes = finished.stdout.total.saturating_add(finished.stderr.total);
        closing = format!("\n[{n_bytes} bytes of output{}]", place(finished.spill.as_ref()));
    }
    for line in closing_lines(&finished, limit, processes, denied) {
        text.push_str(&format!("\n{line}"));
        closing.push_str(&format!("\n{line}"));
    }
    let report = ToolReport { denials, ..report(&finished, truncated) };
    Output { text, report, data: None, update: None, closing: Some(closing) }
}

/// The lines that say how a command ended.
pub(crate) fn closing_lines(
    finished: &Finished,
    limit: Duration,
    processes: u32,
    denied: Option<String>,
) -> Vec<String> {
    let mut lines = Vec::new();
    match finished.ended_by {
        EndedBy::Itself => (),
        EndedBy::Deadline => {
            let limit = seconds(limit);
            lines.push(format!("[Process timed out after {limit} and was terminated]"));
        }
        EndedBy::Abort => lines.push("[Process aborted]".to_owned()),
        EndedBy::Processes => {
            lines.push(format!("[Process limit of {processes} exceeded; the command was ended]"));
        }
    }
    if finished.output_open {
        lines.push(open_line(&finished.output_held_by));
    }
    match finished.background_ended {
        0 => (),
        1 => lines.push("[1 background process was ended]".to_owned()),
        n => lines.push(format!("[{n} background processes were ended]")),
    }
    match finished.survivors {
        0 => (),
        1 => lines.push("[1 process could not be ended]".to_owned()),
        n => lines.push(format!("[{n} processes could not be ended]")),
    }
    lines.extend(denied);
    lines.push(match finished.exit {
        Exit::Code(code) => format!("[Exit code: {code}]"),
        Exit::Signal(_) => "[Exit code: unknown]".to_owned(),
    });
    lines
}

/// Who held the output open when the shell had ended, by the first of them: what they printed later is lost.
fn open_line(holders: &[Holder]) -> String {
    let name = |Holder { pid, command }: &Holder| match command.as_str() {
        "" => format!("pid {pid}"),
        command => format!("{command} (pid {pid})"),
    };
    let named: Vec<String> = holders.iter().take(MAX_NAMED).map(name).collect();
    match (named.is_empty(), holders.len() - named.len()) {
        (true, _) => "[Output was still held open]".to_owned(),
        (false, 0) => format!("[Output was still held open by: {}]", named.join(", ")),
        (false, n) => {
            format!("[Output was still held open by: {}, and {n} more]", named.join(", "))
        }
    }
}

fn report(finished: &Finished, truncated: bool) -> ToolReport {
    let (exit_code, signal) = match finished.exit {
        Exit::Code(code) => (Some(code), None),
        Exit::Signal(signal) => (None, Some(signal)),
    };
    let whole = finished.spill.as_ref().filter(|spilled| truncated && spilled.complete);
    let holders = finished.output_held_by.iter().take(MAX_LISTED);
    ToolReport {
        is_error: exit_code != Some(0) || finished.ended_by != EndedBy::Itself,
        exit_code,
        signal,
        timed_out: finished.ended_by == EndedBy::Deadline,
        aborted: finished.ended_by == EndedBy::Abort,
        truncated,
        full_output_path: whole.map(|spilled| spilled.path.to_string_lossy().into_owned()),
        background_ended: finished.background_ended,
        output_open: finished.output_open,
        background_pids: holders.map(|holder| holder.pid).collect(),
        survivors: finished.survivors,
        user_ms: Some(milliseconds(finished.usage.user)),
        system_ms: Some(milliseconds(finished.usage.system)),
        max_rss_kb: Some(finished.usage.max_rss_kb),
        ..ToolReport::default()
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Both streams as one text.
struct Shown {
    text: String,
    truncated: bool,
}

fn show(finished: &Finished) -> Shown {
    let joined = Joined::new(&finished.stdout, &finished.stderr);
    let (head, tail) = if joined.is_whole() {
        let text = plain::head(&joined.front, usize::MAX).text;
        if text.len() <= MAX_OUTPUT_BYTES {
            return Shown { text, truncated: false };
        }
        let tail = plain::tail(&joined.front, 0, OUTPUT_HALF_BYTES);
        (plain::head(&joined.front, OUTPUT_HALF_BYTES), tail)
    } else {
        // What is between the two may cut a sequence or a character.
        let n_front = joined.front.len() - plain::unfinished(&joined.front);
        let front = joined.front.get(..n_front).unwrap_or_default();
        let tail = plain::tail(&joined.back, plain::MAX_SEQUENCE, OUTPUT_HALF_BYTES);
        (plain::head(front, OUTPUT_HALF_BYTES), tail)
    };
    let n_shown = u64::try_from(head.n_bytes + tail.n_bytes).unwrap_or(u64::MAX);
    let n_omitted = joined.total.saturating_sub(n_shown);
    let place = place(finished.spill.as_ref());
    let text = format!("{}\n[... {n_omitted} bytes omitted{place}]\n{}", head.text, tail.text);
    Shown { text, truncated: true }
}

/// Where the rest can be read.
pub(crate) fn place(spill: Option<&Spilled>) -> String {
    match spill {
        Some(Spilled { path, complete: true, .. }) => {
            format!("; full output: {}", path.display())
        }
        Some(Spilled { bytes: 0, disk_is_low: true, .. }) => {
            "; not kept in a file: the disk is almost full".to_owned()
        }
        Some(Spilled { path, bytes, complete: false, disk_is_low }) => {
            let why = if *disk_is_low { "; the disk is almost full" } else { "" };
            format!("; first {bytes} bytes of the output: {}{why}", path.display())
        }
        None => String::new(),
    }
}

/// stdout, a newline if both streams have something, and stderr: as one stream that may have lost its
/// middle.
struct Joined {
    /// From the beginning to the first byte that was not kept.
    front: Vec<u8>,
    /// From the last byte that was not kept to the end; empty if all was kept.
    back: Vec<u8>,
    total: u64,
}

impl Joined {
    fn new(stdout: &Captured, stderr: &Captured) -> Self {
        let separator: &[u8] = if stdout.total == 0 || stderr.total == 0 { b"" } else { b"\n" };
        let all_of_stderr = || [separator, &stderr.head, &stderr.tail].concat();
        let (front, back) = match (stdout.is_whole(), stderr.is_whole()) {
            (true, true) => ([&stdout.head, &stdout.tail, &*all_of_stderr()].concat(), Vec::new()),
            (true, false) => (
                [&*stdout.head, &stdout.tail, separator, &stderr.head].concat(),
                stderr.tail.clone(),
            ),
            (false, true) => (stdout.head.clone(), [&stdout.tail, &*all_of_stderr()].concat()),
            (false, false) => (stdout.head.clone(), stderr.tail.clone()),
        };
        let n_separator = u64::try_from(separator.len()).unwrap_or(0);
        let total = stdout.total.saturating_add(stderr.total).saturating_add(n_separator);
        Self { front, back, total }
    }

    fn is_whole(&self) -> bool {
        u64::try_from(self.front.len()).is_ok_and(|kept| kept == self.total)
    }
}

#[cfg(test)]
mod tests;
