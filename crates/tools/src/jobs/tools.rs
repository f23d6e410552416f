//! The job tools: the start of a job, `jobs`, `job_output` and `job_kill`.

use super::job::{BackgroundJob, JobSnapshot};
use super::log::{self, OutputRange, count};
use super::table::FindError;
use super::text::{self, OutputPage};
use crate::arguments::Arguments;
use crate::call_limits::{CallLimits, StopCause};
use crate::command_line::{CommandLine, launch_failed};
use crate::denials::DenialDetector;
use crate::terminals::TerminalSetup;
use crate::{Call, Output, Toolbox, strip_ansi};
use quackd_process::{Command, LaunchError};
use quackd_protocol::denial::of_session;
use quackd_protocol::limits::{
    MAX_JOB_TIME, MAX_JOBS_PER_SESSION, MAX_OUTPUT_BYTES, MAX_TERMINALS_PER_SESSION,
    MIN_TOOL_DEADLINE,
};
use quackd_protocol::tools::{
    BASH, BadParameter, Digits, JOB_KILL, JOB_OUTPUT, JobKillArguments, JobOutputArguments,
    JobReference,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A job to start.
#[derive(Debug)]
pub(crate) struct JobRequest {
    pub(crate) command_line: CommandLine,
    pub(crate) finder: DenialDetector,
    /// Requested time limit. `None`: the longest one, and no limit on a terminal.
    pub(crate) limit: Option<Duration>,
    /// Terminal of the command, if it shall have one.
    pub(crate) terminal: Option<TerminalSetup>,
}

/// Starts a job, for `bash` in the background and for a program on a terminal.
///
/// # Errors
/// The answer of a call that has started nothing.
pub(crate) async fn start(
    toolbox: &Toolbox,
    call: &Call,
    request: JobRequest,
    bounds: &CallLimits,
) -> Result<Arc<BackgroundJob>, Output> {
    let JobRequest { command_line, finder, limit, terminal } = request;
    let jobs = &toolbox.state.jobs;
    jobs.clear(bounds).await.map_err(|cutoff| Output::cut_off(BASH.name, bounds, cutoff))?;
    // The wait for the disk may have taken long. A canceled call must not leave a job behind.
    if bounds.cancel.is_cancelled() {
        return Err(Output::cut_off(BASH.name, bounds, StopCause::Aborted));
    }

    // Nothing is awaited from here to the start, so that concurrent calls cannot exceed the limits.
    if jobs.is_full() {
        return Err(Output::error(format_args!(
            "{MAX_JOBS_PER_SESSION} background jobs are running, and a session may have no more; \
             end one with job_kill first"
        )));
    }
    if terminal.is_some() && jobs.has_all_terminals() {
        if jobs.has_one_terminal() {
            return Err(Output::error(format_args!(
                "Tier D allows one terminal per session; end it first with job_kill, or with quack jobs kill {}{}",
                jobs.last_terminal().unwrap_or_default(),
                of_session(&toolbox.confinement.session)
            )));
        }
        return Err(Output::error(format_args!(
            "{MAX_TERMINALS_PER_SESSION} terminals are running, and a session may have no more; \
             end one with job_kill first"
        )));
    }

    let longest = if terminal.is_some() { Duration::MAX } else { MAX_JOB_TIME };
    let deadline = limit.map_or(longest, |limit| limit.clamp(MIN_TOOL_DEADLINE, MAX_JOB_TIME));
    let line = command_line.line.clone();
    let command = Command { deadline, ..command_line.command(call.spec.call_id.0.clone()) };

    jobs.start(&line, command, finder, terminal).map_err(|error| match error {
        LaunchError::Aborted => Output::cut_off(BASH.name, bounds, StopCause::Aborted),
        error => launch_failed(&error),
    })
}

/// Lists the jobs.
pub(crate) fn jobs(toolbox: &Toolbox) -> Output {
    text::list(&toolbox.state.jobs.all())
}

/// Kills a job. Answers when its processes are gone.
pub(crate) async fn job_kill(
    toolbox: &Toolbox,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    let job = match find(toolbox, JobKillArguments::of(arguments.object()).job) {
        Ok(job) => job,
        Err(error) => return Output::error(error),
    };

    let was_running = job.is_running();
    job.kill();

    tokio::select! {
        biased;
        () = job.ended() => text::killed(&job, was_running),
        () = bounds.cancel.cancelled() => Output::cut_off(JOB_KILL.name, bounds, StopCause::Aborted),
        () = tokio::time::sleep_until(bounds.deadline.into()) => {
            Output::cut_off(JOB_KILL.name, bounds, StopCause::TimedOut)
        }
    }
}

/// Returns the output of a job since a cursor, immediately or when new output arrives.
pub(crate) async fn job_output(
    toolbox: &Toolbox,
    arguments: &Arguments,
    bounds: &CallLimits,
) -> Output {
    let request = JobOutputArguments::of(arguments.object());
    let (job, cursor, wait) = match page_request(toolbox, request) {
        Ok(request) => request,
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
            Err(cutoff) => return Output::cut_off(JOB_OUTPUT.name, bounds, cutoff),
        };

        let is_news = page.end.is_some() || page.missing != 0 || !page.text.is_empty();
        if is_news || until <= Instant::now() {
            return text::output(&job, &page);
        }

        tokio::select! {
            biased;
            () = bounds.cancel.cancelled() => {
                return Output::cut_off(JOB_OUTPUT.name, bounds, StopCause::Aborted);
            }
            () = job.more_than(page.total) => (),
            () = tokio::time::sleep_until(until.into()) => (),
        }
    }
}

/// Returns the page at a cursor, or the last page. A page begins and ends between characters and escape
/// sequences, so that joined pages equal one large page.
async fn page(
    toolbox: &Toolbox,
    job: &BackgroundJob,
    cursor: Option<u64>,
    bounds: &CallLimits,
) -> Result<OutputPage, StopCause> {
    // The start of the last page is arbitrary. The bytes before it show whether it is inside an escape
    // sequence.
    let lead = if cursor.is_none() { strip_ansi::MAX_SEQUENCE } else { 0 };
    let max = MAX_OUTPUT_BYTES + lead;
    let JobSnapshot { position, in_memory, total, end } = job.look(cursor, max);
    // The file of a running job grows, so the read ends at its present end.
    let in_file = end.as_ref().map_or(u64::MAX, |end| end.spilled().map_or(0, |file| file.bytes));

    let stretch = if in_memory.at <= position {
        in_memory
    } else {
        let (run_dir, name) = (toolbox.run_dir.clone(), job.file_name());
        let read = move || log::read_blocking(&run_dir, &name, in_file, position, max, in_memory);
        bounds.run_blocking(read).await?
    };

    let from = cursor.unwrap_or_else(|| total.saturating_sub(count(MAX_OUTPUT_BYTES)));
    let missing = stretch.at.saturating_sub(from);
    let stretch = whole_at_end(beginning_at(stretch, from), total, end.is_none());
    let before = if cursor.is_none() { stretch.at - missing } else { 0 };

    let part = strip_ansi::head(&stretch.bytes, MAX_OUTPUT_BYTES);
    let next = stretch.at + count(part.n_bytes);
    Ok(OutputPage { before, missing, text: part.text, next, total, end })
}

/// Removes the bytes before `from`, and the rest of a character or sequence that begins there.
fn beginning_at(OutputRange { at, mut bytes }: OutputRange, from: u64) -> OutputRange {
    let lead = usize::try_from(from.saturating_sub(at)).unwrap_or(usize::MAX);
    if lead == 0 {
        return OutputRange { at, bytes };
    }
    let begin = strip_ansi::begin_after(&bytes, lead);
    bytes.drain(..begin);
    OutputRange { at: at + count(begin), bytes }
}

/// Removes an incomplete character or sequence at the end, if more bytes may follow.
fn whole_at_end(
    OutputRange { at, mut bytes }: OutputRange,
    total: u64,
    is_running: bool,
) -> OutputRange {
    let begun = strip_ansi::unfinished(&bytes);
    let reaches_end = at + count(bytes.len()) == total;
    // Before a gap, nothing more follows, and the next cursor must advance.
    if if reaches_end { is_running } else { begun < bytes.len() } {
        bytes.truncate(bytes.len() - begun);
    }
    OutputRange { at, bytes }
}

/// Reason for rejecting a call of a job tool.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("Missing required parameter 'job'")]
    NoJob,
    /// An invalid cursor would return the wrong part.
    #[error(transparent)]
    Number(#[from] BadParameter),
    #[error(transparent)]
    Find(#[from] FindError),
}

/// Finds the job of `job_output`. Returns it with the cursor, and the time to wait for output.
fn page_request(
    toolbox: &Toolbox,
    request: JobOutputArguments,
) -> Result<(Arc<BackgroundJob>, Option<u64>, Duration), AskError> {
    let job = find(toolbox, request.job)?;
    let Digits(wait) = request.wait_ms?;
    let Digits(cursor) = request.cursor?;
    Ok((job, cursor, Duration::from_millis(wait.unwrap_or(0))))
}

fn find(
    toolbox: &Toolbox,
    JobReference(job): JobReference,
) -> Result<Arc<BackgroundJob>, AskError> {
    Ok(toolbox.state.jobs.find(&job.ok_or(AskError::NoJob)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_begun_waits_for_its_end_and_never_holds_up_the_rest() {
        let whole = |at, bytes: &[u8], total, is_running| {
            whole_at_end(OutputRange { at, bytes: bytes.into() }, total, is_running).bytes
        };
        for (begun, n) in [(b"a\xe2\x82".as_slice(), 1), (b"a\x1b[31", 1), (b"a\x1b]0;t\x1b", 1)] {
            let (given, total) = (begun.to_vec(), count(begun.len()));
            // More bytes may follow.
            assert_eq!(whole(0, begun, total, true), given[..n]);
            assert_eq!(whole(0, &begun[n..], total - 1, true), b"");
            // No more bytes follow.
            assert_eq!(whole(0, begun, total, false), given);
            // The rest is on the next page, or in a gap.
            assert_eq!(whole(0, begun, 99, false), given[..n]);
            assert_eq!(whole(0, &begun[n..], 99, true), given[n..]);
        }
    }

    #[test]
    fn the_last_page_begins_with_a_whole_character() {
        let begin = |bytes: &[u8], asked| {
            let OutputRange { at, bytes } =
                beginning_at(OutputRange { at: 5, bytes: bytes.into() }, asked);
            (at, bytes)
        };
        let euro = "€b".as_bytes();
        // A cursor and a gap before it are used as given.
        assert_eq!(begin(&euro[1..], 5), (5, euro[1..].to_vec()));
        assert_eq!(begin(&euro[1..], 2), (5, euro[1..].to_vec()));
        assert_eq!(begin(euro, 6), (8, b"b".to_vec()));
        assert_eq!(begin(b"a\x1b[31mb", 7), (11, b"b".to_vec()));
        assert_eq!(begin(b"a\x1b[31m", 7), (11, b"".to_vec()));
    }
}
