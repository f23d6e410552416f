//! Records the calls of a session in the journal.

use super::identity::SessionIdentity;
use super::pending_calls::{outcome, tool_info};
use super::worker::CallResult;
use crate::events::SessionCall;
use crate::log::journal::Journal;
use crate::metrics::call_latency::CallOutcome;
use jiff::Timestamp;
use quackd_protocol::SessionId;
use quackd_protocol::denial::one_line;
use quackd_protocol::journal::{
    CallEnd, CallRecord, JOB_END, cut_masked, cut_text, id_of, is_beginning_of_job,
};
use quackd_protocol::tools::{find, is_internal};
use quackd_protocol::worker::{CallOrigin, EndedJob, TurnOrigin};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Duration;

/// Maximum length of a tool's name, in characters.
const MAX_TOOL_CHARS: usize = 100;

/// Longest path of an output file that is recorded, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// Client name of the session's own agent.
const AGENT: &str = "agent";

/// The journal of calls. Without a file, nothing is recorded.
#[derive(Debug)]
pub(crate) struct CallJournal {
    journal: Option<Journal>,
    /// Number of the last record: its time in milliseconds since 1970, or the next free number.
    last: Cell<u64>,
    /// Ids of the records of running jobs, by session and job.
    jobs: RefCell<HashMap<(SessionId, String), String>>,
}

/// Maximum number of running jobs whose beginning is recorded.
const MAX_JOBS: usize = 4096;

impl CallJournal {
    pub(crate) fn new(journal: Option<Journal>) -> Self {
        Self { journal, last: Cell::new(0), jobs: RefCell::default() }
    }

    /// Whether calls are recorded.
    pub(crate) fn is_on(&self) -> bool {
        self.journal.is_some()
    }

    /// Appends the beginning of a call that still runs. Returns whether the call is recorded.
    pub(crate) fn record_beginning(
        &self,
        session: &SessionIdentity,
        call: &SessionCall,
        elapsed: Duration,
    ) -> bool {
        let record = self.record_of(session, call, elapsed);
        match (&self.journal, &record) {
            (Some(journal), Some(record)) => journal.add(record),
            _ => return false,
        }
        true
    }

    /// Appends a call that was answered, or counts it as missing if the disk has no room.
    pub(crate) fn record(
        &self,
        session: &SessionIdentity,
        call: &SessionCall,
        result: &CallResult,
        elapsed: Duration,
        has_room: bool,
    ) {
        let (Some(journal), Some(begun)) = (&self.journal, self.record_of(session, call, elapsed))
        else {
            return;
        };

        if !has_room {
            return journal.miss();
        }

        let info = tool_info(&session.id, result, elapsed);
        let report = result.as_ref().ok().map(|done| &done.finished.report);
        let listed = |list: &Vec<String>| list.iter().map(|line| one_line(line)).collect();
        let has_text = info.is_error || find(&begun.tool).is_some_and(|it| it.is_answer_recorded);

        journal.add(&CallRecord {
            outcome: end_of(outcome(result)),
            exit_code: info.exit_code,
            signal: report.and_then(|report| report.signal),
            duration_ms: info.duration_ms,
            denials: report
                .filter(|report| !report.of_job)
                .map(|report| report.denials.clone())
                .unwrap_or_default(),
            // The worker's texts are not trusted.
            files: report.map(|report| listed(&report.written)).unwrap_or_default(),
            n_files: report.map_or(0, |report| report.n_written),
            full_output_path: report
                .and_then(|report| report.full_output_path.clone())
                .filter(|path| path.len() <= MAX_PATH_BYTES),
            text: has_text.then(|| answer(&call.spec.tool, result)).flatten(),
            ..begun
        });
    }

    /// Returns the record of a call without an end. `None` if it is not recorded.
    fn record_of(
        &self,
        session: &SessionIdentity,
        call: &SessionCall,
        elapsed: Duration,
    ) -> Option<CallRecord> {
        self.journal.as_ref()?;

        // The agent reads its instructions and images with internal tools, which no event shows either.
        let tool = match &call.agents {
            Some(shown) if call.is_internal() => shown,
            _ => &call.spec.tool,
        };
        if tool.is_empty() || is_internal(tool) {
            return None;
        }

        let at_ms = Timestamp::now().as_millisecond();
        let at_ms = at_ms.saturating_sub(i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX));
        let client = call.client().map(|client| client.name.clone());

        Some(CallRecord {
            id: call.spec.origin.call.clone(),
            at_ms,
            session_id: session.id.clone(),
            session_name: session.name().to_string(),
            label: session.label.clone(),
            workspace_path: session.workspace.clone(),
            client: client.or_else(|| call.agents.as_ref().map(|_| AGENT.to_owned())),
            turn: call.spec.origin.turn.as_ref().map(|turn| turn.number),
            tool: tool.chars().take(MAX_TOOL_CHARS).collect(),
            arguments: call.shown_arguments.clone(),
            outcome: CallEnd::Running,
            exit_code: None,
            signal: None,
            duration_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            denials: Vec::new(),
            files: Vec::new(),
            n_files: 0,
            full_output_path: None,
            text: None,
        })
    }
}

impl CallJournal {
    /// Appends the beginning or the end of a background job, or counts the end as missing if the disk has no room. Both have
    /// the same id, so that the next daemon finds the jobs without an end.
    pub(crate) fn record_job(
        &self,
        session: &SessionIdentity,
        job: &EndedJob,
        end: CallEnd,
        has_room: bool,
    ) {
        let Some(journal) = &self.journal else { return };
        if !has_room {
            if end != CallEnd::Running {
                self.jobs.borrow_mut().remove(&(session.id.clone(), job.info.id.clone()));
                journal.miss();
            }
            return;
        }

        let at_ms = Timestamp::now().as_millisecond();
        let arguments = json!({"job": one_line(&job.info.id), "command": job.info.command});
        journal.add(&CallRecord {
            id: self.id_of_job((session.id.clone(), job.info.id.clone()), end, at_ms),
            at_ms,
            session_id: session.id.clone(),
            session_name: session.name().to_string(),
            label: session.label.clone(),
            workspace_path: session.workspace.clone(),
            client: None,
            turn: None,
            tool: JOB_END.to_owned(),
            arguments: serde_json::value::to_raw_value(&arguments).ok(),
            outcome: end,
            exit_code: job.exit_code,
            signal: job.signal,
            duration_ms: job.duration_ms,
            denials: job.denials.clone(),
            files: Vec::new(),
            n_files: 0,
            full_output_path: None,
            text: None,
        });
    }

    fn id_of_job(&self, job: (SessionId, String), end: CallEnd, at_ms: i64) -> String {
        let mut jobs = self.jobs.borrow_mut();
        if end != CallEnd::Running {
            return jobs.remove(&job).unwrap_or_else(|| self.next_id(at_ms));
        }
        let id = self.next_id(at_ms);
        if jobs.len() < MAX_JOBS {
            jobs.insert(job, id.clone());
        }
        id
    }

    /// Appends the ends of calls and background jobs that ran when an earlier daemon was killed.
    pub(crate) fn record_ends(&self, unended: Vec<CallRecord>) {
        let Some(journal) = &self.journal else { return };
        let now_ms = Timestamp::now().as_millisecond();
        for begun in unended {
            let is_job = is_beginning_of_job(&begun);
            let tool = &begun.tool;
            let text = format!(
                "Error: The daemon was killed during {tool}. It may have run; it was not retried."
            );
            journal.add(&CallRecord {
                // The time of a job is that of its end.
                at_ms: if is_job { now_ms } else { begun.at_ms },
                outcome: CallEnd::DaemonDied,
                duration_ms: 0,
                text: (!is_job).then_some(text),
                ..begun
            });
        }
    }

    /// Describes a call that has arrived, with its id, which it has also if calls are not recorded. `turn` is that of the
    /// session's own agent if the agent makes the call, and `daemon` the start of the daemon.
    pub(crate) fn origin(&self, turn: Option<u64>, daemon: &str) -> CallOrigin {
        CallOrigin {
            call: self.next_id(Timestamp::now().as_millisecond()),
            turn: turn.map(|number| TurnOrigin { number, daemon: daemon.to_owned() }),
        }
    }

    fn next_id(&self, at_ms: i64) -> String {
        let number = u64::try_from(at_ms).unwrap_or_default().max(self.last.get() + 1);
        self.last.set(number);
        id_of(number)
    }
}

/// Returns the text of an answer, without its middle if it is long.
fn answer(tool: &str, result: &CallResult) -> Option<String> {
    let done = match result {
        Ok(done) => &done.finished,
        Err(error) => return Some(cut_text(&error.text(tool))),
    };
    // The text for followers is shorter.
    let text = done.shown.as_deref().unwrap_or(&done.text);
    serde_json::from_str::<String>(text.get()).ok().map(|text| cut_masked(&text))
}

fn end_of(outcome: CallOutcome) -> CallEnd {
    match outcome {
        CallOutcome::Ok => CallEnd::Ok,
        CallOutcome::Error => CallEnd::Failed,
        CallOutcome::TimedOut => CallEnd::TimedOut,
        CallOutcome::Aborted => CallEnd::Aborted,
        CallOutcome::WorkerDied => CallEnd::Died,
        CallOutcome::Busy => CallEnd::Busy,
        CallOutcome::Refused => CallEnd::Refused,
    }
}
