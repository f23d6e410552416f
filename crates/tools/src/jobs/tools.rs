//! The tools about jobs: starting one in `bash`, and `jobs`, `job_output` and `job_kill`.

use super::job::{Ended, Job, Seen};
use super::log::{self, Stretch, count};
use super::{FILE_SUFFIX, FindError, text};
use crate::arguments::Arguments;
use crate::bash::{CommandLine, launch_failed};
use crate::bounds::{Bounds, Cutoff};
use crate::live::unfinished;
use crate::{Call, Output, Toolbox, truncate};
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
    match toolbox.jobs.start(&line, command) {
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
        let seen = job.look(cursor, MAX_OUTPUT_BYTES);
        let total = seen.total;
        if let Some(cursor) = cursor.filter(|cursor| total < *cursor) {
            return Output::error(format_args!(
                "Cursor {cursor} is beyond the output of '{}', which has {total} bytes",
                job.id
            ));
        }
        let page = match page(toolbox, &job, seen, cursor.is_none(), bounds).await {
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
            () = job.more_than(total) => (),
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

async fn page(
    toolbox: &Toolbox,
    job: &Job,
    seen: Seen,
    is_last_part: bool,
    bounds: &Bounds,
) -> Result<Page, Cutoff> {
    let Seen { position, in_memory, total, end } = seen;
    let in_file = end.as_ref().map_or(u64::MAX, |end| end.spilled().map_or(0, |file| file.bytes));
    let stretch = if in_memory.at <= position {
        in_memory
    } else {
        let (run_dir, name) = (toolbox.run_dir.clone(), format!("{}{FILE_SUFFIX}", job.id));
        let read = move || {
            log::read_blocking(&run_dir, &name, in_file, position, MAX_OUTPUT_BYTES, in_memory)
        };
        bounds.run_blocking(read).await?
    };
    let missing = stretch.at - position;
    let stretch = whole_characters(stretch, total, end.is_none(), is_last_part);
    let part = truncate::head(&stretch.bytes, MAX_OUTPUT_BYTES);
    let before = if is_last_part { stretch.at - missing } else { 0 };
    let next = stretch.at + count(part.n_bytes);
    Ok(Page { before, missing, text: part.text, next, total, end })
}

/// Leaves the rest of a character at the beginning out, if the beginning was our choice, and at the end a
/// character of which more may come.
fn whole_characters(
    Stretch { mut at, mut bytes }: Stretch,
    total: u64,
    is_running: bool,
    is_last_part: bool,
) -> Stretch {
    if is_last_part && 0 < at {
        let is_rest = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
        let rest = bytes.iter().take(3).take_while(is_rest).count();
        bytes.drain(..rest);
        at += count(rest);
    }
    let begun = unfinished(&bytes);
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
    fn a_character_is_not_torn_and_never_holds_up_the_rest() {
        let whole = |at, bytes: &[u8], total, is_running, is_last_part| {
            let stretch = Stretch { at, bytes: bytes.into() };
            let Stretch { at, bytes } = whole_characters(stretch, total, is_running, is_last_part);
            (at, bytes)
        };
        let (begun, rest) = (b"a\xe2\x82".as_slice(), b"\x82\xacb".as_slice());
        // More of it may come.
        assert_eq!(whole(0, begun, 3, true, false), (0, b"a".to_vec()));
        assert_eq!(whole(0, b"\xe2\x82", 2, true, false), (0, b"".to_vec()));
        // Nothing comes any more.
        assert_eq!(whole(0, begun, 3, false, false), (0, begun.to_vec()));
        // The rest is on the next page, or in a gap.
        assert_eq!(whole(0, begun, 9, false, false), (0, b"a".to_vec()));
        assert_eq!(whole(0, b"\xe2\x82", 9, true, false), (0, b"\xe2\x82".to_vec()));
        // A cursor is taken at its word.
        assert_eq!(whole(5, rest, 8, true, false), (5, rest.to_vec()));
        assert_eq!(whole(5, rest, 8, true, true), (7, b"b".to_vec()));
        assert_eq!(whole(0, rest, 3, true, true), (0, rest.to_vec()));
    }
}
