//! What the worker says: hello, results, pongs, its silence, and the end of its channel.

use super::WorkerHandle;
use super::jobs::Jobs;
use crate::children::{Beats, ChannelEvent, ChannelInput, Life, Supervised};
use crate::session::pending_calls::{Calls, Printed};
use crate::session::worker::CallDone;
use crate::wire::raw_json::is_sound;
use actix::prelude::*;
use quackd_protocol::CallId;
use quackd_protocol::limits::{
    CREDIT_INTERVAL, MAX_PATH_BYTES, MAX_SHOWN_JSON_BYTES, MAX_WEB_SEARCHES_PER_SESSION,
    UPDATE_CREDITS,
};
use quackd_protocol::output::OutputPiece;
use quackd_protocol::policy::WebSearchRule;
use quackd_protocol::tiers;
use quackd_protocol::worker::{
    FRAME_PROTOCOL, FromWorker, Hello, JobInfo, ToWorker, ToolFinished, ToolUpdate, WebOutcome,
    WebSearch,
};
use quackd_supervision::{Cause, Hello as HelloMeans};
use serde_json::value::RawValue;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Longest version, tier or policy name that a worker may say: they are logged and shown.
const MAX_WORD_BYTES: usize = 64;

/// Longest note about a worker's confinement, in characters.
const MAX_NOTE_CHARS: usize = 300;

/// Warnings that one worker process may send. There is no reason for more than a handful.
const MAX_WARNINGS: u32 = 1000;

impl Handler<ChannelEvent<FromWorker>> for WorkerHandle {
    type Result = ();

    fn handle(&mut self, msg: ChannelEvent<FromWorker>, ctx: &mut Self::Context) {
        let ChannelEvent { generation, input } = msg;
        if self.child.current(generation).is_none() {
            return;
        }
        match input {
            ChannelInput::Frame(frame) => self.frame(frame, ctx),
            ChannelInput::Closed { violation } => self.link_closed(violation, ctx),
        }
    }
}

impl WorkerHandle {
    fn frame(&mut self, frame: FromWorker, ctx: &mut Context<Self>) {
        match frame {
            FromWorker::Hello(hello) => self.hello(hello, ctx),
            FromWorker::CannotStart { reason } if self.hello.is_none() => {
                let reason = reason.chars().filter(|c| !c.is_control()).take(MAX_NOTE_CHARS);
                self.condemn(Cause::Refused(reason.collect()), ctx);
            }
            _ if self.hello.is_none() => {
                self.condemn(Cause::Protocol("the first frame was no hello".into()), ctx);
            }
            FromWorker::ToolFinished(finished) => self.finished(finished, ctx),
            FromWorker::ToolUpdate(update) => self.printed(&update, ctx),
            FromWorker::ToolOutput { call_id, piece } => {
                let is_paid =
                    piece.is_sound() && self.calls.printed(Printed { call_id, piece }).is_ok();
                if !is_paid {
                    self.condemn(Cause::Protocol("output without a credit".into()), ctx);
                }
            }
            FromWorker::WebSearch { call_id, search } => self.search_web(call_id, search, ctx),
            FromWorker::Jobs { running } => self.jobs_changed(running, ctx),
            // Every frame is an answer to one of ours, costs a credit, is paid for by a call or is one of a few
            // warnings: a worker cannot keep the supervisor busy with anything else.
            FromWorker::Pong { seq } => {
                if !self.pong(seq, ctx) {
                    self.condemn(Cause::Protocol("a pong without a ping".into()), ctx);
                }
            }
            FromWorker::CannotStart { .. } => {
                self.condemn(Cause::Protocol("it has started already".into()), ctx);
            }
            FromWorker::Warning { text } if self.child.warned(MAX_WARNINGS).is_some() => {
                let text: String = text.chars().take(500).collect();
                tracing::warn!(session = %self.session, text, "worker warns");
            }
            FromWorker::Warning { .. } => {
                self.condemn(Cause::Protocol("too many warnings".into()), ctx);
            }
        }
    }
}

impl WorkerHandle {
    pub(super) fn hello(&mut self, mut hello: Hello, ctx: &mut Context<Self>) {
        if hello.proto != FRAME_PROTOCOL {
            let cause = Cause::VersionMismatch { ours: FRAME_PROTOCOL, theirs: hello.proto };
            return self.condemn(cause, ctx);
        }
        let words = [&hello.version, &hello.sandbox.tier, &hello.sandbox.policy];
        if words.iter().any(|word| MAX_WORD_BYTES < word.len()) {
            return self.condemn(Cause::Protocol("a hello of too many words".into()), ctx);
        }
        for note in &mut hello.sandbox.notes {
            *note = note.chars().take(MAX_NOTE_CHARS).collect();
        }
        let now = Instant::now();
        match self.child.worker.on_hello(now) {
            HelloMeans::Ready => {}
            HelloMeans::Late => return,
            HelloMeans::Unexpected => {
                return self.condemn(Cause::Protocol("a second hello".into()), ctx);
            }
        }
        tracing::info!(session = %self.session, pid = hello.pid, tier = hello.sandbox.tier, confinement = tiers::in_words(&hello.sandbox.tier), "worker ready");
        self.hello = Some(hello);
        self.idle_since = now;
        self.begin_heartbeat(ctx);
        self.arm_life(ctx);
        self.changed();
        // The policy may have been changed while it started.
        if self.has_other_policy() {
            return self.replace_outdated(ctx);
        }
        for number in self.calls.unsent() {
            self.send(number, ctx);
        }
    }

    pub(super) fn finished(&mut self, finished: ToolFinished, ctx: &mut Context<Self>) {
        let ToolFinished { call_id, text, shown, update, output, closing, mut report, data } =
            finished;
        let Some(number) = self.calls.sent_number(&call_id) else {
            // A call that we answered ourselves has condemned its worker already, so that this is an
            // answer to nothing, or a second one.
            return self.condemn(Cause::Protocol("a result without a call".into()), ctx);
        };
        let is_shown = shown.as_deref().is_none_or(is_shown_text);
        if !text.get().starts_with('"') || !is_sound(&text) || !is_shown {
            return self.condemn(Cause::Protocol("a result that is no text".into()), ctx);
        }
        let path = report.full_output_path.as_deref().unwrap_or_default();
        if MAX_PATH_BYTES < path.len() {
            return self.condemn(Cause::Protocol("a result with an endless path".into()), ctx);
        }
        if update.as_ref().is_some_and(|update| !is_update_of(update, &call_id)) {
            return self.condemn(Cause::Protocol("an update that is no text".into()), ctx);
        }
        // It is forwarded as it is, and a newline ends a line: the rest would pass for a reply of ours.
        if data.as_ref().is_some_and(|data| data.get().contains(['\n', '\r'])) {
            return self.condemn(Cause::Protocol("a result of several lines".into()), ctx);
        }
        if data.as_deref().is_some_and(|data| !is_sound(data)) {
            return self.condemn(Cause::Protocol("a result that nobody can read".into()), ctx);
        }
        let is_streamed = self.calls.is_streamed(number);
        let is_closing =
            closing.as_ref().is_none_or(|text| text.get().starts_with('"') && is_sound(text));
        if !output.iter().all(OutputPiece::is_sound) || !is_closing {
            return self.condemn(Cause::Protocol("output that is none".into()), ctx);
        }
        let streamed = is_streamed.then_some((output, closing));
        let tool = self.calls.shown(&call_id).map(|call| call.tool.clone()).unwrap_or_default();
        self.note_report(&tool, &mut report);
        if report.not_run && report.workspace_gone && self.send_to_next_worker(number, ctx) {
            return;
        }
        self.answer(number, ctx, |_| Ok(CallDone { text, shown, update, streamed, report, data }));
    }

    /// A running call has printed something.
    fn printed(&mut self, update: &ToolUpdate, ctx: &mut Context<Self>) {
        let Some(credit) = self.update_credits.checked_sub(1) else {
            return self.condemn(Cause::Protocol("an update without a credit".into()), ctx);
        };
        if !is_update_of(update, &update.call_id) {
            return self.condemn(Cause::Protocol("an update that is no text".into()), ctx);
        }
        if credit + 1 == UPDATE_CREDITS {
            self.give_credits_later(ctx);
        }
        self.update_credits = credit;
        // The call may have been answered by us meanwhile.
        if let Some(call) = self.calls.shown(&update.call_id) {
            self.services.events.tool_printed(&self.session, call, update);
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
        match self.child.offer(&ToWorker::Credit { n }) {
            Ok(()) => self.update_credits = UPDATE_CREDITS,
            // It does not take its frames now; without credits it would never show anything again.
            Err(_full) => self.give_credits_later(ctx),
        }
    }

    /// A background job has begun or ended.
    fn jobs_changed(&mut self, running: Vec<JobInfo>, ctx: &mut Context<Self>) {
        let (had_any, now) = (self.jobs.any(), Instant::now());
        if let Err(why) = self.jobs.report(running, now) {
            return self.condemn(Cause::Protocol(why.into()), ctx);
        }
        self.services.pool.spills.may_have_grown();
        self.services.pool.slots.set_jobs(&self.session, self.jobs.count());
        if had_any && !self.jobs.any() {
            self.idle_since = now;
            if self.must_be_replaced() {
                self.replace_outdated(ctx);
            }
        }
        self.changed();
    }

    /// A call wants something from the web: the worker has no network and no key.
    fn search_web(&mut self, call_id: CallId, search: WebSearch, ctx: &mut Context<Self>) {
        if !self.calls.begin_search(&call_id) {
            return self.condemn(Cause::Protocol("a web search without a call".into()), ctx);
        }
        let (generation, services) = (self.child.generation, Rc::clone(&self.services));
        let id = call_id.clone();
        // Decided here and not in the worker, and by what is wanted now.
        let refused = match self.policy.web_search {
            WebSearchRule::On => None,
            rule => Some(WebOutcome::Refused { ask: rule == WebSearchRule::Ask }),
        };
        let is_busy = MAX_WEB_SEARCHES_PER_SESSION <= self.calls.searches();
        let searching = async move {
            match refused {
                Some(refused) => refused,
                None if is_busy => WebOutcome::Busy,
                None => services.egress.web_search(search).await,
            }
        };
        let search = ctx.spawn(searching.into_actor(self).map(move |outcome, handle, _| {
            handle.calls.searched(&call_id);
            // The worker may be another one by now.
            if handle.child.current(generation).is_some()
                && handle.child.offer(&ToWorker::WebDone { call_id, outcome }).is_err()
            {
                tracing::warn!(session = %handle.session, "a web answer was not taken by its worker");
            }
        }));
        self.calls.searching(&id, search);
    }

    /// Whether nothing would be lost with the worker.
    pub(super) fn is_unused(&self) -> bool {
        is_unused(&self.calls, &self.jobs)
    }
}

/// Whether no call runs in a worker, and no background job.
fn is_unused(calls: &Calls, jobs: &Jobs) -> bool {
    !calls.any_sent() && !jobs.any()
}

/// When a worker has been without use for as long as it may. However long a job runs without a call, it is
/// not ended for that.
pub(super) fn idle_until(
    calls: &Calls,
    jobs: &Jobs,
    idle_since: Instant,
    limit: Duration,
) -> Option<Instant> {
    is_unused(calls, jobs).then(|| idle_since + limit)
}

/// Texts of a worker go to clients as they are. JSON that begins with a quotation mark is a string, and a
/// string holds no line end.
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
    use crate::events::ShownCall;
    use crate::session::pending_calls::NewCall;

    #[test]
    fn a_worker_is_idle_without_a_call_and_without_a_job() {
        let (mut calls, mut jobs, now) = (Calls::default(), Jobs::default(), Instant::now());
        let limit = Duration::from_secs(60);
        assert_eq!(idle_until(&calls, &jobs, now, limit), Some(now + limit));

        let job = JobInfo { id: "job-1".into(), command: "sleep".into() };
        jobs.report(vec![job], now).unwrap();
        assert_eq!(idle_until(&calls, &jobs, now, limit), None);
        jobs.report(Vec::new(), now).unwrap();
        assert_eq!(idle_until(&calls, &jobs, now, limit), Some(now + limit));

        let shown = ShownCall { id: "c".into(), tool: "bash".into(), arguments: None };
        let new = NewCall {
            shown,
            arguments: String::new(),
            safe_mode: false,
            deadline: limit,
            stream: None,
        };
        let number = calls.next_number();
        drop(calls.insert(number, new, now, SpawnHandle::default()));
        let until = idle_until(&calls, &jobs, now, limit);
        assert_eq!(until, Some(now + limit), "it waits for another worker");
        calls.send(number, now).unwrap();
        assert_eq!(idle_until(&calls, &jobs, now, limit), None);
    }
}
