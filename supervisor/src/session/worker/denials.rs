//! Accesses that the sandbox of the session's workers denied, as the workers report them, long calls, and the ends of
//! background jobs. Counts all denials and keeps the last ones. For display only; no decision depends on them.

use super::actor::WorkerActor;
use crate::clock::now_text;
use crate::pool::snapshot::Denials;
use actix::prelude::*;
use quackd_protocol::client::TimedDenial;
use quackd_protocol::denial::{Denial, one_line};
use quackd_protocol::journal::CallEnd;
use quackd_protocol::tools::BASH;
use quackd_protocol::worker::{EndedJob, JobInfo, MAX_HINT_BYTES, MAX_LISTED, ToolReport};
use std::rc::Rc;
use std::time::Duration;

/// Maximum number of denials that are kept per session.
const MAX_DENIALS: usize = 64;

/// Maximum number of surviving processes that one call can add to the metric. The worker's number is not trusted.
const MAX_SURVIVORS: u32 = 10_000;

/// Maximum length of a tool's name, in characters.
const MAX_TOOL_CHARS: usize = 100;

/// Time after which the journal gets the beginning of a call.
pub(super) const LONG_CALL: Duration = Duration::from_secs(1);

impl Denials {
    fn note(&mut self, tool: &str, denials: &[Denial]) {
        for denial in denials.iter().take(MAX_LISTED) {
            self.total = self.total.saturating_add(1);
            if MAX_DENIALS <= self.last.len() {
                self.last.pop_front();
            }
            self.last.push_back(TimedDenial {
                at: now_text(),
                tool: tool.chars().take(MAX_TOOL_CHARS).collect(),
                // Create a new value, because the worker's texts may be too long.
                denial: Denial::new(denial.kind, denial.target.as_deref(), denial.likely),
                hint: None,
            });
        }
    }
}

impl WorkerActor {
    /// Records the long calls after `wait`, unless that is already planned. One timer serves all calls: the actor looks at
    /// each of its timers whenever it is woken, and thousands of calls may end within a second.
    pub(super) fn record_later(&mut self, wait: Duration, ctx: &mut Context<Self>) {
        if std::mem::replace(&mut self.records_later, true) {
            return;
        }
        ctx.run_later(wait, |handle, ctx| {
            handle.records_later = false;
            handle.record_beginnings(ctx);
        });
    }

    /// Records the calls that have run for a while: if the daemon is killed, the journal still has them.
    fn record_beginnings(&mut self, ctx: &mut Context<Self>) {
        let session = &*self.session;
        let (journal, is_low) = (&self.services.call_journal, self.services.pool.disk.is_low());
        let mut next: Option<Duration> = None;
        for (number, age) in self.calls.unrecorded() {
            match LONG_CALL.checked_sub(age).filter(|left| !left.is_zero()) {
                Some(left) => next = Some(next.map_or(left, |next| next.min(left))),
                None if is_low => {}
                None => self.calls.begin(number, |call, elapsed| {
                    journal.record_beginning(session, call, elapsed)
                }),
            }
        }
        if let Some(next) = next {
            self.record_later(next, ctx);
        }
    }

    /// Records the denials and surviving processes of a call.
    pub(super) fn note_report(&mut self, tool: &str, report: &mut ToolReport) {
        for denial in &mut report.denials {
            *denial = Denial::new(denial.kind, denial.target.as_deref(), denial.likely);
        }
        for line in &mut report.audit {
            *line = one_line(line);
        }
        if let Some(hint) = &mut report.hint {
            hint.truncate(hint.floor_char_boundary(MAX_HINT_BYTES));
        }

        // Those of a job were recorded with its end.
        if !report.denials.is_empty() && !report.of_job {
            Rc::make_mut(&mut self.denials).note(tool, &report.denials);
        }

        if report.survivors != 0 {
            self.services.metrics.survivors.add(report.survivors.min(MAX_SURVIVORS).into());
            tracing::warn!(session = %self.session.id, tool, left = report.survivors, "command left processes that could not be killed");
        }

        self.workspace_replaced |= report.workspace_gone;
        if report.truncated {
            self.services.pool.spills.notify_write();
        }
    }
}

impl WorkerActor {
    /// Records the end and the denials of a background job.
    pub(super) fn note_job_end(&mut self, mut job: EndedJob) {
        for denial in &mut job.denials {
            *denial = Denial::new(denial.kind, denial.target.as_deref(), denial.likely);
        }
        if !job.denials.is_empty() {
            Rc::make_mut(&mut self.denials).note(BASH.name, &job.denials);
        }
        let end = match (job.timed_out, job.aborted, job.exit_code) {
            (true, ..) => CallEnd::TimedOut,
            (_, true, _) => CallEnd::Aborted,
            (.., Some(0)) => CallEnd::Ok,
            _ => CallEnd::Failed,
        };
        self.record_job(&job, end);
    }

    /// Records the end of the jobs that ran in a worker that has exited.
    pub(super) fn note_lost_jobs(&self) {
        let end = match self.child.ending {
            Some(_) => CallEnd::Aborted,
            None => CallEnd::Died,
        };
        for job in self.jobs.snapshot().iter() {
            let duration_ms = u64::try_from(job.since.elapsed().as_millis()).unwrap_or(u64::MAX);
            let ended = EndedJob { info: job.info.clone(), duration_ms, ..EndedJob::default() };
            self.record_job(&ended, end);
        }
    }

    /// Records the beginning of a background job, so that its end is known if the daemon is killed.
    pub(super) fn note_job_beginning(&self, info: JobInfo) {
        let job = EndedJob { info, ..EndedJob::default() };
        self.record_job(&job, CallEnd::Running);
    }

    fn record_job(&self, job: &EndedJob, end: CallEnd) {
        let has_room = !self.services.pool.disk.is_low();
        self.services.call_journal.record_job(&self.session, job, end, has_room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::denial::DenialKind;

    #[test]
    fn the_last_ones_are_kept_and_all_are_counted() {
        let mut denials = Denials::default();
        let of = |n: usize| Denial::new(DenialKind::Write, Some(&format!("/{n}")), false);
        for n in 0..100 {
            denials.note("bash", &[of(n)]);
        }
        assert_eq!((denials.total, denials.last.len()), (100, MAX_DENIALS));
        assert_eq!(denials.last.back().unwrap().denial, of(99));
        denials.note("bash", &(0..1000).map(of).collect::<Vec<_>>());
        assert_eq!(denials.total, 108);
    }
}
