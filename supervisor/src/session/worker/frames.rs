//! Handles frames from the worker, missing heartbeats, and the end of the channel.

use super::actor::WorkerActor;
use super::jobs::ReportedJobs;
use super::unrecorded::ChangingCall;
use crate::children::{ChannelEvent, ChildActor, HeartbeatDriver, LifecycleDriver};
use crate::session::pending_calls::PendingCalls;
use crate::session::worker::{CallDone, Printed};
use crate::wire::raw_json::{is_one_line, is_sound};
use actix::prelude::*;
use quackd_protocol::CallId;
use quackd_protocol::foreign_text::stripped_line;
use quackd_protocol::limits::{
    CREDIT_INTERVAL, MAX_PATH_BYTES, MAX_SHOWN_JSON_BYTES, MAX_WEB_SEARCHES_PER_SESSION,
    UPDATE_CREDITS,
};
use quackd_protocol::output::OutputPiece;
use quackd_protocol::policy::WebSearchRule;
use quackd_protocol::tiers::Tier;
use quackd_protocol::worker::{
    EndedJob, FRAME_PROTOCOL, FromWorker, Hello, JobInfo, ToWorker, ToolFinished, ToolUpdate,
    WebOutcome, WebSearch,
};
use quackd_supervision::{Cause, Hello as HelloMeans};
use serde_json::value::RawValue;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Maximum length of a version, tier or policy name from a worker. They are logged and shown.
const MAX_WORD_BYTES: usize = 64;

/// Maximum length of a note about a worker's sandbox, in characters.
const MAX_NOTE_CHARS: usize = 300;

/// Maximum number of warnings from one worker process. A working one sends only a few.
const MAX_WARNINGS: u32 = 1000;

impl Handler<ChannelEvent<FromWorker>> for WorkerActor {
    type Result = ();

    fn handle(&mut self, msg: ChannelEvent<FromWorker>, ctx: &mut Self::Context) {
        self.on_channel_event(msg, ctx);
    }
}

impl WorkerActor {
    pub(super) fn worker_frame(&mut self, frame: FromWorker, ctx: &mut Context<Self>) {
        match frame {
            FromWorker::Hello(hello) => self.worker_hello(hello, ctx),
            FromWorker::CannotStart { reason } if self.hello.is_none() => {
                let reason = stripped_line(&reason, MAX_NOTE_CHARS);
                self.kill_worker(Cause::Refused(reason), ctx);
            }
            // The link process sends it before the hello too.
            FromWorker::Link(state) => self.link_reports(state, ctx),
            _ if self.hello.is_none() => {
                self.worker_broke("the first frame was no hello", ctx);
            }
            FromWorker::ToolFinished(finished) => self.finished(finished, ctx),
            FromWorker::ToolUpdate(update) => self.printed(&update, ctx),
            FromWorker::ToolOutput { call_id, piece } => {
                let is_paid =
                    piece.is_sound() && self.calls.printed(Printed { call_id, piece }).is_ok();
                if !is_paid {
                    self.worker_broke("output without a credit", ctx);
                }
            }
            FromWorker::StdinWanted { call_id, open } => self.input_wanted(&call_id, open, ctx),
            FromWorker::WebSearch { call_id, search } => self.search_web(call_id, search, ctx),
            FromWorker::Jobs { running, ended } => self.on_jobs(running, ended, ctx),
            FromWorker::Terminal { terminal, message } => {
                self.terminal_says(&terminal, message, ctx);
            }
            // Every frame is a reply, costs a credit, belongs to a call, or is one of a limited number of warnings. A
            // worker cannot flood the supervisor with other frames.
            FromWorker::Pong { seq } => {
                if !self.on_pong(seq, ctx) {
                    self.worker_broke("a pong without a ping", ctx);
                }
            }
            FromWorker::CannotStart { .. } => {
                self.worker_broke("it has started already", ctx);
            }
            FromWorker::Warning { text } if self.child.warned(MAX_WARNINGS).is_some() => {
                let text: String = text.chars().take(500).collect();
                tracing::warn!(session = %self.session.id, text, "worker warns");
            }
            FromWorker::Warning { .. } => {
                self.worker_broke("too many warnings", ctx);
            }
        }
    }
}

impl WorkerActor {
    pub(super) fn worker_hello(&mut self, mut hello: Hello, ctx: &mut Context<Self>) {
        if hello.proto != FRAME_PROTOCOL {
            let cause = Cause::VersionMismatch { ours: FRAME_PROTOCOL, theirs: hello.proto };
            return self.kill_worker(cause, ctx);
        }
        if MAX_WORD_BYTES < hello.version.len() {
            return self.worker_broke("a hello of too many words", ctx);
        }

        for note in &mut hello.sandbox.notes {
            *note = note.chars().take(MAX_NOTE_CHARS).collect();
        }
        if let Some(link) = &mut self.far {
            link.notice = None;
            // Its sockets are on another machine, so no proxy serves them.
            hello.sandbox.hosts = false;
        }

        let now = Instant::now();
        match self.child.lifecycle.on_hello(now) {
            HelloMeans::Ready => {}
            HelloMeans::Late => return,
            HelloMeans::Unexpected => {
                return self.worker_broke("a second hello", ctx);
            }
        }

        let tier = hello.sandbox.tier;
        tracing::info!(session = %self.session.id, pid = hello.pid, tier = tier.map(Tier::name), confinement = tier.map(Tier::in_words), "worker ready");
        self.hello = Some(Rc::new(hello));
        self.idle_since = now;

        self.begin_network(ctx);
        self.begin_heartbeat(ctx);
        self.arm_life(ctx);
        self.publish_status();

        // The policy may have changed while the worker started.
        self.tell_network_mode();
        if self.has_other_policy() {
            return self.restart_if_outdated(ctx);
        }

        self.record_first_state(ctx);
        for number in self.calls.unsent() {
            if !self.waits_for_state(number) {
                self.send(number, ctx);
            }
        }

        self.publish_status();
    }

    pub(super) fn finished(&mut self, mut finished: ToolFinished, ctx: &mut Context<Self>) {
        let ToolFinished { call_id, text, shown, update, output, closing, report, data } =
            &finished;
        let Some(number) = self.calls.sent_number(call_id) else {
            // If the supervisor answers a call first, it kills the worker. This is therefore a second result, or one
            // for an unknown call.
            return self.worker_broke("a result without a call", ctx);
        };

        let is_shown = shown.as_deref().is_none_or(is_shown_text);
        if !text.get().starts_with('"') || !is_sound(text) || !is_shown {
            return self.worker_broke("a result that is no text", ctx);
        }

        let path = report.full_output_path.as_deref().unwrap_or_default();
        if MAX_PATH_BYTES < path.len() {
            return self.worker_broke("a result with an endless path", ctx);
        }
        if update.as_ref().is_some_and(|update| !is_update_of(update, call_id)) {
            return self.worker_broke("an update that is no text", ctx);
        }

        // The data is forwarded unchanged. Text after a newline would pass for a reply of the supervisor.
        if data.as_deref().is_some_and(|data| !is_one_line(data)) {
            return self.worker_broke("a result of several lines", ctx);
        }
        if data.as_deref().is_some_and(|data| !is_sound(data)) {
            return self.worker_broke("a result that nobody can read", ctx);
        }

        let is_closing =
            closing.as_ref().is_none_or(|text| text.get().starts_with('"') && is_sound(text));
        if !output.iter().all(OutputPiece::is_sound) || !is_closing {
            return self.worker_broke("output that is none", ctx);
        }

        if !self.calls.is_streamed(number) {
            finished.output.clear();
            finished.closing = None;
        }

        let report = &mut finished.report;
        let tool = self.calls.get(number).map(|call| call.spec.tool.clone()).unwrap_or_default();
        self.note_report(&tool, report);

        if report.not_run && report.workspace_gone && self.send_to_next_worker(number, ctx) {
            return;
        }
        if report.not_run && report.files_replaced && self.send_after_replacement(number, ctx) {
            return;
        }

        let has_denials = !report.denials.is_empty();
        let about_policy = has_denials.then(|| self.line_about_older_policy()).flatten();
        self.answer(number, ctx, |_| Ok(CallDone { finished, about_policy }));
    }

    /// Handles output of a running call.
    fn printed(&mut self, update: &ToolUpdate, ctx: &mut Context<Self>) {
        let Some(credit) = self.update_credits.checked_sub(1) else {
            return self.worker_broke("an update without a credit", ctx);
        };
        if !is_update_of(update, &update.call_id) {
            return self.worker_broke("an update that is no text", ctx);
        }
        if credit + 1 == UPDATE_CREDITS {
            self.give_credits_later(ctx);
        }
        self.update_credits = credit;
        // The supervisor may have answered the call in the meantime.
        if let Some(call) = self.calls.sent_call(&update.call_id) {
            self.services.events.tool_printed(&self.session.id, call, update);
        }
    }

    fn give_credits_later(&mut self, ctx: &mut Context<Self>) {
        let generation = self.child.generation;
        ctx.run_later(CREDIT_INTERVAL, move |handle, ctx| handle.give_credits(generation, ctx));
    }

    fn give_credits(&mut self, generation: u64, ctx: &mut Context<Self>) {
        if self.child.current(generation).is_none() {
            return;
        }
        let n = UPDATE_CREDITS.saturating_sub(self.update_credits);
        match self.child.try_send(&ToWorker::Credit { n }) {
            Ok(()) => self.update_credits = UPDATE_CREDITS,
            // The queue to the worker is full. Without credits the worker would never send output again.
            Err(_full) => self.give_credits_later(ctx),
        }
    }

    /// Handles a change of the background jobs.
    fn on_jobs(&mut self, running: Vec<JobInfo>, ended: Vec<EndedJob>, ctx: &mut Context<Self>) {
        let (had_any, now) = (self.jobs.any(), Instant::now());
        let earlier = self.jobs.snapshot();
        if let Err(why) = self.jobs.report(running, &ended, now) {
            return self.worker_broke(why, ctx);
        }

        for job in self.jobs.snapshot().iter() {
            if earlier.iter().all(|known| known.info.id != job.info.id) {
                self.note_job_beginning(job.info.clone());
                if let Err(why) = self.begin_terminal(&job.info) {
                    return self.worker_broke(why, ctx);
                }
            }
        }

        for job in ended {
            let name = format!("end of job {}", job.info.id);
            self.record_state_after(ChangingCall { name, by_commands: true }, ctx);
            self.note_job_end(job);
        }

        self.services.pool.spills.notify_write();
        self.services.pool.slots.set_jobs(&self.session.id, self.jobs.count());
        if had_any && !self.jobs.any() {
            self.idle_since = now;
            if self.needs_replacement() {
                self.restart_if_outdated(ctx);
            }
        }

        self.publish_status();
    }

    /// Handles a web search for a call. The worker has no network and no key.
    fn search_web(&mut self, call_id: CallId, search: WebSearch, ctx: &mut Context<Self>) {
        if !self.calls.begin_search(&call_id) {
            return self.worker_broke("a web search without a call", ctx);
        }

        let (generation, services) = (self.child.generation, Rc::clone(&self.services));
        let id = call_id.clone();

        // The supervisor makes the decision, with the current policy.
        let refused = match self.policy.web_search {
            WebSearchRule::On => None,
            rule => Some(WebOutcome::Refused { ask: rule == WebSearchRule::Ask }),
        };

        let is_busy = MAX_WEB_SEARCHES_PER_SESSION <= self.calls.searches();
        let searching = async move {
            match refused {
                Some(refused) => refused,
                None if is_busy => WebOutcome::Busy,
                None => {
                    services.models.check_certificates().await;
                    services.egress.web_search(search).await
                }
            }
        };

        let search = ctx.spawn(searching.into_actor(self).map(move |outcome, handle, _| {
            handle.calls.set_search(&call_id, None);
            // Another worker may run by now.
            if handle.child.current(generation).is_some()
                && handle.child.try_send(&ToWorker::WebDone { call_id, outcome }).is_err()
            {
                tracing::warn!(session = %handle.session.id, "cannot send a web search result to the worker");
            }
        }));
        self.calls.set_search(&id, Some(search));
    }

    /// Whether stopping the worker would interrupt nothing.
    pub(super) fn is_unused(&self) -> bool {
        is_unused(&self.calls, &self.jobs)
    }
}

/// Whether a worker has neither a running call nor a background job.
fn is_unused(calls: &PendingCalls, jobs: &ReportedJobs) -> bool {
    !calls.any_sent() && !jobs.any()
}

/// Time at which the idle timeout ends a worker. Background jobs keep the worker, regardless of their duration.
pub(super) fn idle_deadline(
    calls: &PendingCalls,
    jobs: &ReportedJobs,
    idle_since: Instant,
    limit: Duration,
) -> Option<Instant> {
    is_unused(calls, jobs).then(|| idle_since + limit)
}

/// A worker's texts go to clients unchanged. JSON that begins with a quotation mark is a string, and a JSON string
/// contains no line break.
fn is_shown_text(text: &RawValue) -> bool {
    text.get().starts_with('"') && text.get().len() <= MAX_SHOWN_JSON_BYTES && is_sound(text)
}

fn is_update_of(update: &ToolUpdate, call_id: &CallId) -> bool {
    update.call_id == *call_id
        && is_shown_text(&update.delta)
        && update.partial.as_deref().is_none_or(is_shown_text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::SessionCall;
    use crate::session::worker::CallTool;
    use quackd_protocol::worker::CallSpec;

    #[test]
    fn a_worker_is_idle_without_a_call_and_without_a_job() {
        let (mut calls, mut jobs, now) =
            (PendingCalls::default(), ReportedJobs::default(), Instant::now());
        let limit = Duration::from_secs(60);
        assert_eq!(idle_deadline(&calls, &jobs, now, limit), Some(now + limit));

        let job = JobInfo { id: "job-1".into(), command: "sleep".into(), terminal: None };
        jobs.report(vec![job], &[], now).unwrap();
        assert_eq!(idle_deadline(&calls, &jobs, now, limit), None);
        jobs.report(Vec::new(), &[], now).unwrap();
        assert_eq!(idle_deadline(&calls, &jobs, now, limit), Some(now + limit));

        let spec = CallSpec { tool: "bash".into(), deadline_ms: 60_000, ..CallSpec::default() };
        let call = SessionCall::new(spec);
        let call = CallTool { call, stream: None, input: None, cancel: None };
        let number = calls.next_number();
        drop(calls.insert(number, call, None, now, now));
        let until = idle_deadline(&calls, &jobs, now, limit);
        assert_eq!(until, Some(now + limit), "the call waits for another worker");
        calls.send(number, now).unwrap();
        assert_eq!(idle_deadline(&calls, &jobs, now, limit), None);
    }
}
