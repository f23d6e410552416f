//! Writes the answer text of a finished command: both streams, a cut in the middle of long output, and closing
//! lines about the exit.

use crate::Output;
use crate::call_limits::seconds;
use crate::strip_ansi;
use crate::truncate::TRUNCATED;
use quackd_process::{Captured, Ceiling, EndedBy, Exit, Finished, Holder, Spilled, TAIL_BYTES};
use quackd_protocol::CeilingKind;
use quackd_protocol::denial::Denial;
use quackd_protocol::limits::{MAX_OUTPUT_BYTES, OUTPUT_HALF_BYTES};
use quackd_protocol::worker::{MAX_LISTED, ToolReport};
use std::time::Duration;

/// Maximum number of processes that a text lists as holders of an output.
const MAX_NAMED: usize = 3;

// A cut may fall into a sequence and into a character of 4 bytes, which are then dropped.
const _: () = assert!(
    OUTPUT_HALF_BYTES + strip_ansi::MAX_SEQUENCE + 4 <= TAIL_BYTES,
    "the kept end of a stream must contain one half of the shown output"
);

/// An ended command, and the limits under which it ran.
#[derive(Debug)]
pub(crate) struct CommandSummary {
    pub(crate) finished: Finished,
    /// Time limit of the command.
    pub(crate) limit: Duration,
    /// Likely denials.
    pub(crate) denials: Vec<Denial>,
    /// Explanation of the denials for the answer text.
    pub(crate) denied: Option<String>,
}

/// Writes the answer. The order of the closing lines is part of the wire. The exit code is always the last
/// line.
pub(crate) fn compose(ending: CommandSummary) -> Output {
    let CommandSummary { finished, limit, denials, denied } = ending;
    let DisplayOutput { mut text, truncated } = show(&finished);

    let mut closing = String::new();
    if truncated {
        text.push('\n');
        text.push_str(TRUNCATED);
        // A client that streams the output already has all of it.
        let n_bytes = finished.stdout.total.saturating_add(finished.stderr.total);
        closing = format!("\n[{n_bytes} bytes of output{}]", place(finished.spill.as_ref()));
    }

    for line in closing_lines(&finished, limit, denied) {
        text.push_str(&format!("\n{line}"));
        closing.push_str(&format!("\n{line}"));
    }

    let report = ToolReport { denials, ..report(&finished, truncated) };
    Output { text, report, data: None, update: None, closing: Some(closing) }
}

/// Returns the closing lines about the exit of a command.
pub(crate) fn closing_lines(
    finished: &Finished,
    limit: Duration,
    denied: Option<String>,
) -> Vec<String> {
    let mut lines = Vec::new();
    match finished.ended_by {
        // The line of the ceiling follows.
        EndedBy::Itself | EndedBy::Processes | EndedBy::Memory => (),
        EndedBy::Deadline => {
            let limit = seconds(limit);
            lines.push(format!("[Process timed out after {limit} and was terminated]"));
        }
        EndedBy::Abort => lines.push("[Process aborted]".to_owned()),
    }
    lines.extend(finished.ceiling.map(|ceiling| format!("[{ceiling}]")));

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

/// Writes the line about processes that held the output open when the shell exited. Their later output is lost.
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
    // The field promises the whole output. A partial file is named only in the text.
    let whole = finished.spill.as_ref().filter(|spilled| truncated && spilled.complete);

    let holders = finished.output_held_by.iter().take(MAX_LISTED);

    ToolReport {
        is_error: exit_code != Some(0)
            || finished.ended_by != EndedBy::Itself
            || finished.ceiling.is_some(),
        exit_code,
        signal,
        timed_out: finished.ended_by == EndedBy::Deadline,
        aborted: finished.ended_by == EndedBy::Abort,
        ceiling: finished.ceiling.map(ceiling_kind),
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

/// Returns the name of a ceiling in reports.
pub(crate) fn ceiling_kind(ceiling: Ceiling) -> CeilingKind {
    match ceiling {
        Ceiling::SessionMemory { .. }
        | Ceiling::SessionMemoryReached { .. }
        | Ceiling::SessionMemoryFull => CeilingKind::SessionMemory,
        Ceiling::Memory => CeilingKind::Memory,
        Ceiling::Processes { .. } => CeilingKind::Processes,
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Both streams as one text.
struct DisplayOutput {
    text: String,
    truncated: bool,
}

fn show(finished: &Finished) -> DisplayOutput {
    let joined = Joined::new(&finished.stdout, &finished.stderr);
    let (head, tail) = if joined.is_whole() {
        let text = strip_ansi::head(&joined.front, usize::MAX).text;
        if text.len() <= MAX_OUTPUT_BYTES {
            return DisplayOutput { text, truncated: false };
        }
        let tail = strip_ansi::tail(&joined.front, 0, OUTPUT_HALF_BYTES);
        (strip_ansi::head(&joined.front, OUTPUT_HALF_BYTES), tail)
    } else {
        // The gap between the two parts may cut a sequence or a character.
        let n_front = joined.front.len() - strip_ansi::unfinished(&joined.front);
        let front = joined.front.get(..n_front).unwrap_or_default();
        let tail = strip_ansi::tail(&joined.back, strip_ansi::MAX_SEQUENCE, OUTPUT_HALF_BYTES);
        (strip_ansi::head(front, OUTPUT_HALF_BYTES), tail)
    };

    let n_shown = u64::try_from(head.n_bytes + tail.n_bytes).unwrap_or(u64::MAX);
    let n_omitted = joined.total.saturating_sub(n_shown);
    let place = place(finished.spill.as_ref());
    let text = format!("{}\n[... {n_omitted} bytes omitted{place}]\n{}", head.text, tail.text);
    DisplayOutput { text, truncated: true }
}

/// Returns the hint where to read the rest of the output.
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

/// Joins stdout, a newline if neither stream is empty, and stderr to one stream, which may lack its middle.
struct Joined {
    /// Bytes from the start up to the first missing byte.
    front: Vec<u8>,
    /// Bytes after the last missing byte. Empty if no byte is missing.
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
