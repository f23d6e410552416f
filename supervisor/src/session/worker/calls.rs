//! Calls: admitted, sent, answered, aborted. The path that every tool call takes through its session.

use super::WorkerHandle;
use crate::children::{Beats, LATE, Life, Refused, Supervised};
use crate::errors::CallError;
use crate::events::{ShownCall, shown_arguments};
use crate::pool::command_slots::{Asked, Place};
use crate::session::pending_calls::{CallResult, NewCall, Printed, call_id, ended, outcome};
use actix::prelude::*;
use quackd_protocol::CallId;
use quackd_protocol::limits::{
    COMMAND_PLACE_WAIT, CREDIT_INTERVAL, DEADLINE_SLACK, WORKER_READY_WAIT,
};
use quackd_protocol::output::OutputPiece;
use quackd_protocol::worker::{ToWorker, ToolReport, ToolUpdate};
use quackd_supervision::{Cause, Demand, Demander, State};
use serde_json::value::RawValue;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Run one tool in this session's worker. Answered exactly once, by the deadline and a little.
#[derive(Debug, Message)]
#[rtype(result = "CallResult")]
pub(crate) struct CallTool {
    pub(crate) tool: String,
    /// The client's own id of the call, for those who follow.
    pub(crate) client_id: Option<String>,
    /// JSON text.
    pub(crate) arguments: String,
    pub(crate) safe_mode: bool,
    pub(crate) deadline: Duration,
    /// It starts a background job.
    pub(crate) background: bool,
    /// Receives the output of a streamed call: room for [`quackd_protocol::output::PIECE_CREDITS`].
    pub(crate) stream: Option<mpsc::Sender<Printed>>,
    /// Ends the call when cancelled.
    pub(crate) cancel: Option<CancellationToken>,
}

/// A tool's answer.
#[derive(Debug)]
pub(crate) struct CallDone {
    /// A JSON string, as the worker wrote it.
    pub(crate) text: Box<RawValue>,
    /// What followers see instead of a long text.
    pub(crate) shown: Option<Box<RawValue>>,
    /// What it printed that followers have not seen.
    pub(crate) update: Option<ToolUpdate>,
    /// Of a streamed call: its last output, and the end of its text.
    pub(crate) streamed: Option<(Vec<OutputPiece>, Option<Box<RawValue>>)>,
    pub(crate) report: ToolReport,
    pub(crate) data: Option<Box<RawValue>>,
}

impl Handler<CallTool> for WorkerHandle {
    type Result = ResponseFuture<CallResult>;

    fn handle(&mut self, msg: CallTool, ctx: &mut Self::Context) -> Self::Result {
        match self.admit(msg, ctx) {
            Ok(answered) => Box::pin(async {
                // The table is dropped only when the daemon ends.
                answered.await.unwrap_or(Err(CallError::ShuttingDown))
            }),
            Err(refusal) => Box::pin(async { Err(refusal) }),
        }
    }
}

impl WorkerHandle {
    pub(super) fn admit(
        &mut self,
        msg: CallTool,
        ctx: &mut Context<Self>,
    ) -> Result<oneshot::Receiver<CallResult>, CallError> {
        if let Some(ending) = self.child.ending {
            return Err(ending.refusal());
        }
        if self.calls.is_full() {
            return Err(CallError::TooManyCalls);
        }
        self.replace_outdated(ctx);
        let now = Instant::now();
        let demand = self.child.worker.on_demand(now, Demander::Call);
        match &demand {
            Demand::Refuse(cause) => return Err(CallError::Failed(cause.clone())),
            Demand::Use if self.child.is_unresponsive() => {
                return Err(CallError::NotResponding);
            }
            _ => {}
        }
        let CallTool {
            tool,
            client_id,
            arguments,
            safe_mode,
            deadline,
            background,
            stream,
            cancel,
        } = msg;
        if background && let Some(max) = self.services.pool.slots.full_of_jobs() {
            return Err(CallError::TooManyJobs { max });
        }
        let number = self.calls.next_number();
        let events = Rc::clone(&self.services.events);
        let shown = ShownCall {
            id: client_id.unwrap_or_else(|| call_id(number).0),
            arguments: events
                .is_watched(&self.session)
                .then(|| shown_arguments(&tool, &arguments))
                .flatten(),
            tool,
        };
        events.tool_started(&self.session, &shown);
        let wait = WORKER_READY_WAIT.min(deadline);
        let timer = ctx.run_later(wait, move |handle, ctx| handle.not_ready(number, ctx));
        let new = NewCall { shown, arguments, safe_mode, deadline, stream };
        let answered = self.calls.insert(number, new, now, timer);
        if let Some(cancel) = cancel {
            self.watch_cancel(number, cancel, ctx);
        }
        match demand {
            // It waits for the next worker.
            Demand::Use if !self.may_send(number) => {}
            Demand::Use => self.send(number, ctx),
            other => self.follow(other, ctx),
        }
        self.changed();
        Ok(answered)
    }

    /// Ends the call when its client cancels it.
    fn watch_cancel(&mut self, number: u64, cancel: CancellationToken, ctx: &mut Context<Self>) {
        let cancelled = async move { cancel.cancelled().await };
        let cancelled = cancelled.into_actor(self);
        let waiting = ctx.spawn(cancelled.map(move |(), handle, ctx| handle.abort(number, ctx)));
        self.calls.cancelled_by(number, waiting);
    }

    /// Ends one call, which gets its own answer.
    fn abort(&mut self, number: u64, ctx: &mut Context<Self>) {
        let Some(is_sent) = self.calls.cancel(number) else { return };
        if !is_sent {
            return self.answer(number, ctx, |_| Err(CallError::Aborted));
        }
        let cancel = ToWorker::Cancel { call_id: call_id(number) };
        if self.child.process.is_some() && self.child.offer(&cancel).is_err() {
            tracing::warn!(session = %self.session, "a cancel was not taken by its worker");
        }
    }

    /// Gives a call to the worker, which is ready, once there is a place for its command.
    pub(super) fn send(&mut self, number: u64, ctx: &mut Context<Self>) {
        if self.calls.is_queued(number) {
            return;
        }
        if !self.calls.needs_place(number) {
            return self.send_now(number, ctx);
        }
        match self.services.pool.slots.ask(&self.session) {
            Asked::Given(place) => {
                self.calls.give_place(number, place);
                self.send_now(number, ctx);
            }
            Asked::Queued(queued) => {
                let queued = queued.into_actor(self).map(move |place, handle, ctx| {
                    // The table lives as long as the daemon.
                    if let Ok(place) = place {
                        handle.place_given(number, place, ctx);
                    }
                });
                let queued = ctx.spawn(queued);
                self.calls.queue(number, queued);
                let left = self.calls.time_left(number, Instant::now());
                let wait = COMMAND_PLACE_WAIT.min(left / 2);
                let timer = ctx.run_later(wait, move |handle, ctx| handle.no_place(number, ctx));
                self.replace_timer(number, timer, ctx);
            }
        }
    }

    fn place_given(&mut self, number: u64, place: Place, ctx: &mut Context<Self>) {
        self.calls.give_place(number, place);
        // The worker may have ended meanwhile, and nobody wanted another one.
        match self.child.worker.on_demand(Instant::now(), Demander::Call) {
            Demand::Use if self.may_send(number) => self.send_now(number, ctx),
            Demand::Refuse(cause) => self.answer(number, ctx, |_| Err(CallError::Failed(cause))),
            other => {
                self.await_worker(number, ctx);
                self.follow(other, ctx);
            }
        }
    }

    /// Gives an unsent call a limited time to wait for a worker.
    fn await_worker(&mut self, number: u64, ctx: &mut Context<Self>) {
        let left = self.calls.time_left(number, Instant::now());
        let wait = WORKER_READY_WAIT.min(left);
        let timer = ctx.run_later(wait, move |handle, ctx| handle.not_ready(number, ctx));
        self.replace_timer(number, timer, ctx);
    }

    /// The worker reports that a call was not run and that the next worker can run it. Returns false if the call gets
    /// the worker's answer.
    pub(super) fn send_to_next_worker(&mut self, number: u64, ctx: &mut Context<Self>) -> bool {
        let is_kept = self.child.ending.is_some() || self.jobs.any();
        if is_kept || !self.calls.take_back(number) {
            return false;
        }
        self.is_stale = true;
        self.await_worker(number, ctx);
        self.note_idle(ctx);
        true
    }

    /// No place for its command became free in time.
    fn no_place(&mut self, number: u64, ctx: &mut Context<Self>) {
        let fullness = self.services.pool.slots.fullness(&self.session);
        self.answer(number, ctx, |_| Err(CallError::TooManyCommands(fullness)));
    }

    fn replace_timer(&mut self, number: u64, timer: SpawnHandle, ctx: &mut Context<Self>) {
        if let Some(old) = self.calls.set_timer(number, timer) {
            ctx.cancel_future(old);
        }
    }

    /// Gives a call to the worker. From here on it may have run.
    fn send_now(&mut self, number: u64, ctx: &mut Context<Self>) {
        let was_busy = self.calls.any_sent();
        let Some((call, left)) = self.calls.send(number, Instant::now()) else { return };
        self.jobs.call_sent();
        let offered = self.child.offer(&ToWorker::ToolCall(call));
        if let Err(refused) = offered {
            let error = match refused {
                Refused::TooLong => CallError::TooLong,
                Refused::NotTaken => CallError::NotResponding,
            };
            self.answer(number, ctx, |_| Err(error));
            return;
        }
        self.await_answer(number, left + DEADLINE_SLACK, ctx);
        if !was_busy {
            self.is_busy_now(ctx);
        }
        self.changed();
    }

    /// Answers one call and takes note if it was the last one in flight.
    pub(super) fn answer(
        &mut self,
        number: u64,
        ctx: &mut Context<Self>,
        result: impl FnOnce(Duration) -> CallResult,
    ) {
        let (events, session) = (&self.services.events, &self.session);
        let times = &self.services.metrics.calls;
        let tell = |call: &ShownCall, result: &CallResult, elapsed| {
            times.note(&call.tool, outcome(result), elapsed);
            ended(events, session, call, result, elapsed);
        };
        for ended in self.calls.answer(number, result, tell) {
            ctx.cancel_future(ended);
        }
        self.note_idle(ctx);
    }

    /// Takes note if no call is in flight any more.
    fn note_idle(&mut self, ctx: &mut Context<Self>) {
        if !self.calls.any_sent() {
            self.idle_since = Instant::now();
            if self.child.process.is_some() {
                self.is_idle_now(ctx);
            }
            self.end_if_drained(ctx);
            if self.must_be_replaced() {
                self.replace_outdated(ctx);
            }
        }
        self.changed();
    }

    /// The worker was not there in time.
    pub(super) fn not_ready(&mut self, number: u64, ctx: &mut Context<Self>) {
        let why = match self.child.worker.state() {
            State::Backoff { cause, .. }
            | State::Failed { cause, .. }
            | State::Draining { cause: Some(cause), .. } => cause.to_string(),
            State::Draining { cause: None, .. } => "the last one is ending".to_owned(),
            _ if self.must_be_replaced() => self.why_not_replaced(),
            _ => match self.child.worker.last_crash() {
                Some(cause) => cause.to_string(),
                None => "it is starting".to_owned(),
            },
        };
        self.answer(number, ctx, |_| Err(CallError::NotReady(why)));
    }

    /// Gives the worker `limit` to answer a call.
    fn await_answer(&mut self, number: u64, limit: Duration, ctx: &mut Context<Self>) {
        let due = Instant::now() + limit;
        let timer = ctx.run_later(limit, move |handle, ctx| {
            match LATE < due.elapsed() {
                // The worker may have been stopped too, before it had read the call.
                true => handle.await_answer(number, limit, ctx),
                false => handle.no_answer(number, ctx),
            }
        });
        self.replace_timer(number, timer, ctx);
    }

    /// The worker kept a call beyond its deadline and everything added to it: it cannot be trusted.
    pub(super) fn no_answer(&mut self, number: u64, ctx: &mut Context<Self>) {
        self.answer(number, ctx, |deadline| {
            Err(CallError::NoAnswer { after_s: deadline.as_secs().max(1) })
        });
        self.condemn(Cause::NotResponding, ctx);
    }
}

/// Change running calls.
#[derive(Debug, Message)]
#[rtype(result = "usize")]
pub(crate) enum ControlCalls {
    /// End every call of the session. Answered with the number of calls; each gets its own answer.
    Abort,
    /// Output of a streamed call was passed on: its worker may send more.
    OutputTaken(CallId),
}

impl Handler<ControlCalls> for WorkerHandle {
    type Result = usize;

    fn handle(&mut self, msg: ControlCalls, ctx: &mut Self::Context) -> usize {
        match msg {
            ControlCalls::Abort => {
                let all = [self.calls.unsent(), self.calls.sent()].concat();
                all.iter().for_each(|number| self.abort(*number, ctx));
                all.len()
            }
            ControlCalls::OutputTaken(call_id) => {
                self.output_taken(call_id, ctx);
                1
            }
        }
    }
}

impl WorkerHandle {
    fn output_taken(&mut self, call_id: CallId, ctx: &mut Context<Self>) {
        if self.calls.sent_number(&call_id).is_none() || self.child.process.is_none() {
            return;
        }
        let taken = ToWorker::OutputTaken { call_id: call_id.clone() };
        if self.child.offer(&taken).is_err() {
            // The queue to the worker is full. Without credits the worker would never send output again.
            ctx.notify_later(ControlCalls::OutputTaken(call_id), CREDIT_INTERVAL);
        }
    }
}
