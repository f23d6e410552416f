//! The answers about jobs. Voice models see the text only, so that it has all they need to go on.

use super::job::{Ended, Job};
use super::tools::Page;
use crate::Output;
use crate::bash_text::{closing_lines, place};
use quackd_process::{EndedBy, Exit};
use quackd_protocol::worker::ToolReport;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn started(job: &Job) -> Output {
    let id = &job.id;
    let text = format!(
        "Started background job {id}\n[Its output: job_output {id}. To end it: job_kill {id}]"
    );
    Output { data: Some(json!({ "jobId": id })), ..Output::success(text) }
}

pub(super) fn list(jobs: &[Arc<Job>]) -> Output {
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
    Output { data: Some(json!({ "jobs": data })), ..Output::success(text) }
}

pub(super) fn output(job: &Job, page: &Page) -> Output {
    let Page { before, missing, next, total, end, .. } = page;
    let spilled = end.as_ref().and_then(Ended::spilled);
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
        audit: job.take_audit(),
        ..ToolReport::default()
    };
    Output { data: Some(data.into()), report, ..Output::success(text) }
}

pub(super) fn killed(job: &Job, was_running: bool) -> Output {
    let (total, end) = job.glance();
    let id = &job.id;
    let mut text = match was_running {
        true => format!("Ended background job {id}{}", ended_with_it(end.as_ref())),
        false => format!("Background job {id} had ended already"),
    };
    push_closing(&mut text, job, end.as_ref());
    let data = facts(job, end.as_ref(), total);
    let report = ToolReport {
        denials: job.take_denials(),
        audit: job.take_audit(),
        ..ToolReport::default()
    };
    Output { data: Some(data.into()), report, ..Output::success(text) }
}

/// How many processes a job that was killed had, and whether they are gone.
fn ended_with_it(end: Option<&Ended>) -> String {
    let Some(finished) = end.and_then(|end| end.finished.as_ref()) else { return String::new() };
    let counted = match finished.stopped {
        0 => String::new(),
        1 => ": 1 process".to_owned(),
        n => format!(": {n} processes"),
    };
    // They hang in the kernel, have other rights, or the system does not tell.
    let doubt = if finished.is_gone { "" } else { "\n[Some of its processes may still be there]" };
    format!("{counted}{doubt}")
}

/// The lines that say how a job is, each after a line end: of one that has ended, those of `bash`.
fn push_closing(text: &mut String, job: &Job, end: Option<&Ended>) {
    let lines = match end {
        None => vec!["[Job running]".to_owned()],
        Some(Ended { finished: Some(finished), denied, .. }) => {
            closing_lines(finished, job.limit, job.processes, denied.clone())
        }
        Some(Ended { finished: None, .. }) => vec!["[Exit code: unknown]".to_owned()],
    };
    for line in lines {
        text.push('\n');
        text.push_str(&line);
    }
}

/// What every answer tells of a job besides its text.
fn facts(job: &Job, end: Option<&Ended>, total: u64) -> Map<String, Value> {
    let mut facts = Map::new();
    facts.insert("jobId".into(), job.id.clone().into());
    facts.insert("running".into(), end.is_none().into());
    facts.insert("totalBytes".into(), total.into());
    match end.and_then(|end| end.finished.as_ref()).map(|finished| finished.exit) {
        Some(Exit::Code(code)) => drop(facts.insert("exitCode".into(), code.into())),
        Some(Exit::Signal(signal)) => drop(facts.insert("signal".into(), signal.into())),
        None => (),
    }
    facts
}

/// How a job ended, in a list.
fn outcome(end: &Ended) -> String {
    let Some(finished) = &end.finished else { return "exit code unknown".to_owned() };
    match finished.ended_by {
        EndedBy::Itself => finished.exit.to_string(),
        EndedBy::Deadline => "timed out".to_owned(),
        EndedBy::Abort => "ended by job_kill".to_owned(),
        EndedBy::Processes => "too many processes".to_owned(),
    }
}

/// `5s`, `2m 5s`, `3h 12m`.
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
