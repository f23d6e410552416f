//! Answer texts of the job tools. Voice models see only the text, so it contains everything they need to
//! continue.

use super::job::{BackgroundJob, JobEnd};
use crate::Output;
use crate::bash_text::{ceiling_kind, closing_lines, place};
use quackd_process::{EndedBy, Exit};
use quackd_protocol::worker::ToolReport;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Part of a job's output as text.
#[derive(Debug)]
pub(super) struct OutputPage {
    /// Number of bytes before the requested part.
    pub(super) before: u64,
    /// Number of requested bytes that are no longer available.
    pub(super) missing: u64,
    pub(super) text: String,
    /// Position at which the next part begins.
    pub(super) next: u64,
    pub(super) total: u64,
    pub(super) end: Option<JobEnd>,
}

pub(crate) fn started(job: &BackgroundJob) -> Output {
    let id = &job.id;
    let text = match job.terminal {
        Some(_) => format!(
            "Started background job {id} on a terminal\n[Its screen: term_read {id}. To type: term_write {id}. To end it: \
             job_kill {id}]"
        ),
        None => format!(
            "Started background job {id}\n[Its output: job_output {id}. To end it: job_kill {id}]"
        ),
    };
    Output { data: Some(json!({ "jobId": id }).into()), ..Output::success(text) }
}

pub(super) fn list(jobs: &[Arc<BackgroundJob>]) -> Output {
    let mut rows = Vec::new();
    let mut data = Vec::new();

    for job in jobs {
        let (total, end) = job.glance();
        let state = match &end {
            None => format!("running for {}", span(job.started.elapsed())),
            Some(end) => format!("ended {} ago: {}", span(end.at.elapsed()), outcome(end)),
        };
        rows.push(format!("{}  {state}  {total} bytes  {}", job.id, job.command));

        let mut facts = facts(job, end.as_ref(), total);
        facts.insert("ageMs".into(), milliseconds(job.started.elapsed()).into());
        facts.insert("command".into(), job.command.clone().into());
        data.push(Value::from(facts));
    }

    let text = if rows.is_empty() { "No background jobs".to_owned() } else { rows.join("\n") };
    Output { data: Some(json!({ "jobs": data }).into()), ..Output::success(text) }
}

pub(super) fn output(job: &BackgroundJob, page: &OutputPage) -> Output {
    let OutputPage { before, missing, next, total, end, .. } = page;
    let spilled = end.as_ref().and_then(JobEnd::spilled);
    let place = || match end {
        Some(_) => place(spilled),
        None => format!("; output so far: {}", job.file.display()),
    };

    let mut text = String::new();
    if 0 < *before {
        text.push_str(&format!(
            "[... {before} bytes before this; cursor 0 shows them{}]\n",
            place()
        ));
    }
    if 0 < *missing {
        text.push_str(&format!("[... {missing} bytes left out{}]\n", place()));
    }
    text.push_str(&page.text);

    if next < total {
        text.push_str(&format!("\n[Cursor: {next} of {total} bytes]"));
    } else if end.is_none() {
        text.push_str(&format!("\n[Cursor: {next}]"));
    }

    push_closing(&mut text, job, end.as_ref());

    let mut data = facts(job, end.as_ref(), *total);
    data.insert("cursor".into(), (*next).into());

    let truncated = *before != 0 || *missing != 0 || next < total;
    let whole = spilled.filter(|spilled| truncated && spilled.complete);
    let report = ToolReport {
        truncated,
        full_output_path: whole.map(|spilled| spilled.path.to_string_lossy().into_owned()),
        denials: job.take_denials(),
        of_job: true,
        audit: job.take_audit(),
        ..ToolReport::default()
    };
    Output { data: Some(Value::from(data).into()), report, ..Output::success(text) }
}

pub(super) fn killed(job: &BackgroundJob, was_running: bool) -> Output {
    let (total, end) = job.glance();
    let id = &job.id;
    let mut text = if was_running {
        format!("Ended background job {id}{}", ended_with_it(end.as_ref()))
    } else {
        format!("Background job {id} had ended already")
    };

    push_closing(&mut text, job, end.as_ref());

    let data = facts(job, end.as_ref(), total);
    let report = ToolReport {
        denials: job.take_denials(),
        of_job: true,
        audit: job.take_audit(),
        ..ToolReport::default()
    };
    Output { data: Some(Value::from(data).into()), report, ..Output::success(text) }
}

/// Reports the number of processes of a killed job, and whether they are gone.
fn ended_with_it(end: Option<&JobEnd>) -> String {
    let Some(finished) = end.and_then(|end| end.finished.as_ref()) else { return String::new() };
    let counted = match finished.stopped {
        0 => String::new(),
        1 => ": 1 process".to_owned(),
        n => format!(": {n} processes"),
    };
    // They hang in the kernel, run as another user, or cannot be checked.
    let doubt = if finished.is_gone { "" } else { "\n[Some of its processes may still be there]" };
    format!("{counted}{doubt}")
}

/// Appends the lines about the state of a job, each after a line end. An ended job has the closing lines of
/// `bash`.
pub(crate) fn push_closing(text: &mut String, job: &BackgroundJob, end: Option<&JobEnd>) {
    let lines = match end {
        None => job.denied_so_far().into_iter().chain(["[Job running]".to_owned()]).collect(),
        Some(JobEnd { finished: Some(finished), denied, .. }) => {
            closing_lines(finished, job.limit, denied.clone())
        }
        Some(JobEnd { finished: None, .. }) => vec!["[Exit code: unknown]".to_owned()],
    };
    for line in lines {
        text.push('\n');
        text.push_str(&line);
    }
}

/// Returns the data that every answer contains about a job.
fn facts(job: &BackgroundJob, end: Option<&JobEnd>, total: u64) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("jobId".into(), job.id.clone().into());
    facts.insert("running".into(), end.is_none().into());
    facts.insert("totalBytes".into(), total.into());

    match end.and_then(|end| end.finished.as_ref()).map(|finished| finished.exit) {
        Some(Exit::Code(code)) => drop(facts.insert("exitCode".into(), code.into())),
        Some(Exit::Signal(signal)) => drop(facts.insert("signal".into(), signal.into())),
        None => (),
    }
    let ceiling = end.and_then(|end| end.finished.as_ref()?.ceiling).map(ceiling_kind);
    let ceiling = ceiling.and_then(|ceiling| serde_json::to_value(ceiling).ok());
    facts.extend(ceiling.map(|ceiling| ("ceiling".to_owned(), ceiling)));
    facts
}

/// Describes the end of a job in a list.
fn outcome(end: &JobEnd) -> String {
    let Some(finished) = &end.finished else { return "exit code unknown".to_owned() };
    match finished.ended_by {
        EndedBy::Itself if finished.ceiling.is_some() => "too much memory".to_owned(),
        EndedBy::Itself => finished.exit.to_string(),
        EndedBy::Deadline => "timed out".to_owned(),
        EndedBy::Abort => "ended on request".to_owned(),
        EndedBy::Processes => "too many processes".to_owned(),
        EndedBy::Memory => "too much memory".to_owned(),
    }
}

/// Formats a time as `5s`, `2m 5s` or `3h 12m`.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        _ => format!("{}h {}m", seconds / 3600, seconds / 60 % 60),
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_told_in_its_two_largest_units() {
        let told = [0, 59, 60, 125, 3600, 11_520, 90_000].map(|s| span(Duration::from_secs(s)));
        assert_eq!(told, ["0s", "59s", "1m 0s", "2m 5s", "1h 0m", "3h 12m", "25h 0m"]);
    }
}
