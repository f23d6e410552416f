//! The answer text of a finished command: both streams, a cut in the middle of long output, and the
//! lines that say how it ended.

use crate::Output;
use crate::bounds::seconds;
use crate::truncate::{self, TRUNCATED};
use quackd_process::{Captured, EndedBy, Exit, Finished, Spilled};
use quackd_protocol::limits::{MAX_OUTPUT_BYTES, OUTPUT_HALF_BYTES};
use quackd_protocol::worker::ToolReport;
use std::time::Duration;

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) finished: Finished,
    /// The time that it was given.
    pub(crate) limit: Duration,
}

/// Writes the answer. The order of the lines at its end is part of the wire; the exit code is always
/// the last one.
pub(crate) fn compose(ending: &Ending) -> Output {
    let Ending { finished, limit } = ending;
    let Shown { mut text, truncated } = show(finished);
    for line in closing_lines(finished, truncated, *limit) {
        text.push('\n');
        text.push_str(&line);
    }
    Output { text, report: report(finished, truncated), data: None, update: None }
}

pub(crate) fn closing_lines(finished: &Finished, truncated: bool, limit: Duration) -> Vec<String> {
    let mut lines = Vec::new();
    if truncated {
        lines.push(TRUNCATED.to_owned());
    }
    match finished.ended_by {
        EndedBy::Itself => (),
        EndedBy::Deadline => {
            let limit = seconds(limit);
            lines.push(format!("[Process timed out after {limit} and was terminated]"));
        }
        EndedBy::Abort => lines.push("[Process aborted]".to_owned()),
    }
    match finished.background_ended {
        0 => (),
        1 => lines.push("[1 background process was ended]".to_owned()),
        n => lines.push(format!("[{n} background processes were ended]")),
    }
    lines.push(match finished.exit {
        Exit::Code(code) => format!("[Exit code: {code}]"),
        Exit::Signal(_) => "[Exit code: unknown]".to_owned(),
    });
    lines
}

fn report(finished: &Finished, truncated: bool) -> ToolReport {
    let (exit_code, signal) = match finished.exit {
        Exit::Code(code) => (Some(code), None),
        Exit::Signal(signal) => (None, Some(signal)),
    };
    let whole = finished.spill.as_ref().filter(|spilled| truncated && spilled.complete);
    ToolReport {
        is_error: exit_code != Some(0) || finished.ended_by != EndedBy::Itself,
        exit_code,
        signal,
        timed_out: finished.ended_by == EndedBy::Deadline,
        aborted: finished.ended_by == EndedBy::Abort,
        truncated,
        full_output_path: whole.map(|spilled| spilled.path.to_string_lossy().into_owned()),
        background_ended: finished.background_ended,
        user_ms: Some(milliseconds(finished.usage.user)),
        system_ms: Some(milliseconds(finished.usage.system)),
        max_rss_kb: Some(finished.usage.max_rss_kb),
        duration_ms: 0,
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
    if joined.is_whole() {
        let text = String::from_utf8_lossy(&joined.front);
        if text.len() <= MAX_OUTPUT_BYTES {
            return Shown { text: text.into_owned(), truncated: false };
        }
    }
    let end = if joined.is_whole() { &joined.front } else { &joined.back };
    let head = truncate::head(&joined.front, OUTPUT_HALF_BYTES);
    let tail = truncate::tail(end, OUTPUT_HALF_BYTES);
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
        Some(Spilled { path, bytes, complete: false }) => {
            format!("; first {bytes} bytes of the output: {}", path.display())
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
