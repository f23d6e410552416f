//! The tools about jobs: starting one in `bash`, and `jobs`, `job_output` and `job_kill`.

use super::job::{Ended, Job, Seen};
use super::log::{self, Stretch, count};
use super::{FILE_SUFFIX, FindError, text};
use crate::arguments::Arguments;
use crate::bash::{CommandLine, launch_failed};
use crate::bounds::{Bounds, Cutoff};
use crate::denied::Finder;
use crate::{Call, Output, Toolbox, plain};
use quackd_process::{Command, LaunchError};
use quackd_protocol::limits::{
    MAX_JOB_TIME, MAX_JOBS_PER_SESSION, MAX_OUTPUT_BYTES, MIN_TOOL_DEADLINE,
};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The names of the parameter that says which job.
const JOB: &[&str] = &["job", "job_id", "jobId", "id"];

/// `bash` with `background`: starts a job and answers at once.
pub(crate) async fn start(
    toolbox: &Toolbox,
    call: &Call,
    command_line: CommandLine,
    finder: Finder,
    arguments: &Arguments,
    bounds: &Bounds,
) -> Output {
    if let Err(cutoff) = toolbox.jobs.clear(bounds).await {
        return Output::cut_off("bash", bounds, cutoff);
    }
    if bounds.cancel.is_cancelled() {
        return Output::cut_off("bash", bounds, Cutoff::Aborted);
    }
    if toolbox.jobs.is_full() {
        return Output::error(format_args!(
            "{MAX_JOBS_PER_SESSION} background jobs are running, and a session may have no more; \
             end one with job_kill first"
        ));
    }
    let limit = arguments.number("timeout_ms").map_or(MAX_JOB_TIME, Duration::from_millis);
    let line = command_line.line.clone();
    let command = Command {
        deadline: limit.clamp(MIN_TOOL_DEADLINE, MAX_JOB_TIME),
        ..command_line.command(call.call_id.clone())
    };
    match toolbox.jobs.start(&line, command, finder) {
        Ok(job) => text::started(&job),
        Err(LaunchError::Aborted) => Output::cut_off("bash", bounds, Cutoff::Aborted),
        Err(error) => launch_failed(&error),
    }
}

/// Lists the jobs.
pub(crate) fn jobs(toolbox: &Toolbox) -> Output {
    text::list(&toolbox.jobs.all())
}

/// Ends a job. Answers when nothing of it is left.
pub(crate) async fn job_kill(toolbox: &Toolbox, arguments: &Arguments, bounds: &Bounds) -> Output {
    let job = match find(toolbox, arguments) {
        Ok(job) => job,
        Err(error) => return Output::error(error),
    };
    let was_running = job.is_running();
    job.kill();
    tokio::select! {
        biased;
        () = job.ended() => text::killed(&job, was_running),
        () = bounds.cancel.cancelled() => Output::cut_off("job_kill", bounds, Cutoff::Aborted),
        () = tokio::time::sleep_until(bounds.deadline.into()) => {
            Output::cut_off("job_kill", bounds, Cutoff::TimedOut)
        }
    }
}

/// Gives what a job has printed since a cursor, at once or when there is something.
pub(crate) async fn job_output(
    toolbox: &Toolbox,
    arguments: &Arguments,
    bounds: &Bounds,
) -> Output {
    let (job, cursor, wait) = match asked(toolbox, arguments) {
        Ok(asked) => asked,
        Err(error) => return Output::error(error),
    };
    let until = Instant::now().checked_add(wait).unwrap_or(bounds.deadline).min(bounds.deadline);
    loop {
        let (total, _) = job.glance();
        if let Some(cursor) = cursor.filter(|cursor| total < *cursor) {
            return Output::error(format_args!(
                "Cursor {cursor} is beyond the output of '{}', which has {total} bytes",
                job.id
            ));
        }
        let page = match page(toolbox, &job, cursor, bounds).await {
            Ok(page) => page,
            Err(cutoff) => return Output::cut_off("job_output", bounds, cutoff),
        };
        let is_news = page.end.is_some() || page.missing != 0 || !page.text.is_empty();
        if is_news || until <= Instant::now() {
            return text::output(&job, &page);
        }
        tokio::select! {
            biased;
            () = bounds.cancel.cancelled() => {
                return Output::cut_off("job_output", bounds, Cutoff::Aborted);
            }
            () = job.more_than(page.total) => (),
            () = tokio::time::sleep_until(until.into()) => (),
        }
    }
}

/// A part of a job's output, as text.
#[derive(Debug)]
pub(super) struct Page {
    /// Bytes before it that were not asked for.
    pub(super) before: u64,
    /// Bytes that were asked for and are nowhere.
    pub(super) missing: u64,
    pub(super) text: String,
    /// Where the next part begins.
    pub(super) next: u64,
    pub(super) total: u64,
    pub(super) end: Option<Ended>,
}

/// The page at a cursor, or the last one. It begins and ends between characters and escape sequences, so that
/// pages that follow each other are what one page would be.
async fn page(
    toolbox: &Toolbox,
    job: &Job,
    cursor: Option<u64>,
    bounds: &Bounds,
) -> Result<Page, Cutoff> {
    // The last page begins where we choose: what is before it tells whether that is inside of a sequence.
    let lead = if cursor.is_none() { plain::MAX_SEQUENCE } else { 0 };
    let max = MAX_OUTPUT_BYTES + lead;
    let Seen { position, in_memory, total, end } = job.look(cursor, max);
    let in_file = end.as_ref().map_or(u64::MAX, |end| end.spilled().map_or(0, |file| file.bytes));
    let stretch = if in_memory.at <= position {
        in_memory
    } else {
        let (run_dir, name) = (toolbox.run_dir.clone(), format!("{}{FILE_SUFFIX}", job.id));
        let read = move || log::read_blocking(&run_dir, &name, in_file, position, max, in_memory);
        bounds.run_blocking(read).await?
    };
    let asked = cursor.unwrap_or_else(|| total.saturating_sub(count(MAX_OUTPUT_BYTES)));
    let missing = stretch.at.saturating_sub(asked);
    let stretch = whole_at_end(beginning_at(stretch, asked), total, end.is_none());
    let before = if cursor.is_none() { stretch.at - missing } else { 0 };
    let part = plain::head(&stretch.bytes, MAX_OUTPUT_BYTES);
    let next = stretch.at + count(part.n_bytes);
    Ok(Page { before, missing, text: part.text, next, total, end })
}

/// Leaves out what is before `asked`, and the rest of a character or a sequence that begins there.
fn beginning_at(Stretch { at, mut bytes }: Stretch, asked: u64) -> Stretch {
    let lead = usize::try_from(asked.saturating_sub(at)).unwrap_or(usize::MAX);
    if lead == 0 {
        return Stretch { at, bytes };
    }
    let begin = plain::begin_after(&bytes, lead);
    bytes.drain(..begin);
    Stretch { at: at + count(begin), bytes }
}

/// Leaves out a character or a sequence at the end of which more may come.
fn whole_at_end(Stretch { at, mut bytes }: Stretch, total: u64, is_running: bool) -> Stretch {
    let begun = plain::unfinished(&bytes);
    let reaches_end = at + count(bytes.len()) == total;
    // Before a gap nothing more comes, and there must be something to go on with.
    if if reaches_end { is_running } else { begun < bytes.len() } {
        bytes.truncate(bytes.len() - begun);
    }
    Stretch { at, bytes }
}

/// Why a call about a job is refused.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("Missing required parameter 'job'")]
    NoJob,
    /// A cursor that is not understood would show the wrong part.
    #[error("Parameter '{0}' must be a whole number")]
    NotANumber(&'static str),
    #[error(transparent)]
    Find(#[from] FindError),
}

/// What a call of `job_output` asks: the job, the cursor, and how long to wait for news.
fn asked(
    toolbox: &Toolbox,
    arguments: &Arguments,
) -> Result<(Arc<Job>, Option<u64>, Duration), AskError> {
    let job = find(toolbox, arguments)?;
    let wait = number(arguments, "wait_ms")?.unwrap_or(0);
    Ok((job, number(arguments, "cursor")?, Duration::from_millis(wait)))
}

fn find(toolbox: &Toolbox, arguments: &Arguments) -> Result<Arc<Job>, AskError> {
    let by_number = || JOB.iter().find_map(|name| arguments.number(name)).map(|n| n.to_string());
    let reference = arguments.text(JOB).map(|text| text.trim().to_owned()).or_else(by_number);
    Ok(toolbox.jobs.find(&reference.ok_or(AskError::NoJob)?)?)
}

/// A whole number, also as text.
fn number(arguments: &Arguments, name: &'static str) -> Result<Option<u64>, AskError> {
    let number = match arguments.value(&[name]) {
        None => return Ok(None),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(value) => value.as_u64(),
    };
    number.ok_or(AskError::NotANumber(name)).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_begun_waits_for_its_end_and_never_holds_up_the_rest() {
        let whole = |at, bytes: &[u8], total, is_running| {
            whole_at_end(Stretch { at, bytes: bytes.into() }, total, is_running).bytes
        };
        for (begun, n) in [(b"a\xe2\x82".as_slice(), 1), (b"a\x1b[31", 1), (b"a\x1b]0;t\x1b", 1)] {
            let (given, total) = (begun.to_vec(), count(begun.len()));
            // More of it may come.
            assert_eq!(whole(0, begun, total, true), given[..n]);
            assert_eq!(whole(0, &begun[n..], total - 1, true), b"");
            // Nothing comes any more.
            assert_eq!(whole(0, begun, total, false), given);
            // The rest is on the next page, or in a gap.
            assert_eq!(whole(0, begun, 99, false), given[..n]);
            assert_eq!(whole(0, &begun[n..], 99, true), given[n..]);
        }
    }

    #[test]
    fn the_last_page_begins_with_a_whole_character() {
        let begin = |bytes: &[u8], asked| {
            let Stretch { at, bytes } = beginning_at(Stretch { at: 5, bytes: bytes.into() }, asked);
            (at, bytes)
        };
        let euro = "€b".as_bytes();
        // A cursor, and a gap before it, are taken at their word.
        assert_eq!(begin(&euro[1..], 5), (5, euro[1..].to_vec()));
        assert_eq!(begin(&euro[1..], 2), (5, euro[1..].to_vec()));
        assert_eq!(begin(euro, 6), (8, b"b".to_vec()));
        assert_eq!(begin(b"a\x1b[31mb", 7), (11, b"b".to_vec()));
        assert_eq!(begin(b"a\x1b[31m", 7), (11, b"".to_vec()));
    }
}
