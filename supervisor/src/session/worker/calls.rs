//! Calls: admission, dispatch, replies and aborts.

use super::actor::WorkerActor;
use super::denials::LONG_CALL;
use super::tool_call::{CallResult, CallTool};
use crate::children::{ChildActor, HeartbeatDriver, LifecycleDriver, STALL_THRESHOLD, SendError};
use crate::errors::CallError;
use crate::events::{SessionCall, shown_arguments};
use crate::pool::command_slots::{CommandSlot, SlotRequest};
use crate::session::describe::{call_info, jobs};
use crate::session::pending_calls::{CallWait, call_id, outcome, publish_end};
use actix::prelude::*;
use quackd_protocol::CallId;
use quackd_protocol::client::{CallInfo, RunningJob};
use quackd_protocol::limits::{COMMAND_PLACE_WAIT, CREDIT_INTERVAL, DEADLINE_SLACK};
use quackd_protocol::worker::ToWorker;
use quackd_supervision::{Cause, Demand, Demander, State};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Longest command in a question about a host, in bytes.
const MAX_TOLD_COMMAND: usize = 100;

/// Returns the id of a call and its command, or its tool's name, for a question to the user.
fn told(call: &SessionCall) -> Rc<(String, String)> {
    let text = call.facts.command.as_ref().unwrap_or(&call.spec.tool);
    let command = if text.len() <= MAX_TOLD_COMMAND {
        text.clone()
    } else {
        let cut = text.floor_char_boundary(MAX_TOLD_COMMAND);
        format!("{}…", text.get(..cut).unwrap_or_default())
    };
    Rc::new((call.id().to_owned(), command))
}

/// Runs a call and returns its result.
pub(crate) async fn call(session: &Addr<WorkerActor>, call: CallTool) -> CallResult {
    // The actor and its table end only at shutdown.
    let answered = session.send(call).await.unwrap_or(Err(CallError::ShuttingDown))?;
    answered.await.unwrap_or(Err(CallError::ShuttingDown))
}

impl Handler<CallTool> for WorkerActor {
    type Result = Result<oneshot::Receiver<CallResult>, CallError>;

    fn handle(&mut self, msg: CallTool, ctx: &mut Self::Context) -> Self::Result {
        self.admit(msg, ctx)
    }
}

impl WorkerActor {
    pub(super) fn admit(
        &mut self,
        mut msg: CallTool,
        ctx: &mut Context<Self>,
    ) -> Result<oneshot::Receiver<CallResult>, CallError> {
        if let Some(ending) = self.child.ending {
            return Err(ending.refusal());
        }
        if self.calls.is_full() {
            return Err(CallError::TooManyCalls);
        }

        self.restart_if_outdated(ctx);
        self.check_place(ctx);
        let now = Instant::now();
        let demand = self.child.lifecycle.on_demand(now, Demander::Call);
        match &demand {
            Demand::Refuse(cause) => return Err(CallError::Failed(cause.clone())),
            // The link process keeps calls during an interruption.
            Demand::Use if self.child.is_unresponsive() && self.link_notice().is_none() => {
                return Err(CallError::NotResponding);
            }
            _ => {}
        }

        if msg.call.facts.background
            && let Some(max) = self.services.pool.slots.job_limit_reached()
        {
            return Err(CallError::TooManyJobs { max });
        }
        if msg.call.facts.terminal && self.services.pool.terminals.is_full() {
            return Err(CallError::TooManyTerminals);
        }

        let number = self.calls.next_number();
        let cancel = msg.cancel.clone();
        let due = now + self.ready_wait().min(msg.call.spec.deadline());
        self.note_call(number, &msg.call);
        self.announce(number, &mut msg.call);

        // Only questions to the user use it.
        let is_told = self.services.events.answerers.has(&self.session.id);
        let told = is_told.then(|| told(&msg.call));

        let answered = self.calls.insert(number, msg, told, now, due);
        self.arm_call_timer(due, ctx);
        if let Some(cancel) = cancel {
            self.watch_cancel(number, cancel, ctx);
        }

        match demand {
            // The call waits for the next worker.
            Demand::Use if !self.may_send(number) => {}
            Demand::Use => self.send(number, ctx),
            other => self.apply_demand(other, ctx),
        }

        self.publish_status();
        Ok(answered)
    }

    /// Numbers a new call, and tells its followers.
    fn announce(&self, number: u64, call: &mut SessionCall) {
        // The agent's actor has published its turn before the agent can make a call in it.
        let of_agent = |_: &String| self.services.table.snapshot(&self.session.id).agent.turn;
        let turn = call.agents.as_ref().and_then(of_agent);
        let journal = &self.services.call_journal;
        call.spec.call_id = call_id(number);
        call.spec.origin = journal.origin(turn, &self.services.daemon.started_at);
        // Those of an internal tool may contain variables of MCP servers.
        if self.shows_arguments() && !call.is_internal() {
            call.shown_arguments = shown_arguments(&call.spec.tool, &call.spec.arguments);
        }
        self.services.events.tool_started(&self.session.id, call);
    }

    /// Whether followers or the journal get the arguments of calls.
    fn shows_arguments(&self) -> bool {
        self.services.call_journal.is_on() || self.services.events.has_followers(&self.session.id)
    }

    /// Ends the call when its client cancels it.
    fn watch_cancel(&mut self, number: u64, cancel: CancellationToken, ctx: &mut Context<Self>) {
        let cancelled = async move { cancel.cancelled().await };
        let cancelled = cancelled.into_actor(self);
        let waiting = ctx.spawn(cancelled.map(move |(), handle, ctx| handle.abort(number, ctx)));
        self.calls.cancelled_by(number, waiting);
    }

    /// Ends one call, which gets its own reply.
    fn abort(&mut self, number: u64, ctx: &mut Context<Self>) {
        let Some(is_sent) = self.calls.cancel(number) else { return };
        if !is_sent {
            self.answer(number, ctx, |_| Err(CallError::Aborted));
            return self.end_unwanted_wait(ctx);
        }
        let cancel = ToWorker::Cancel { call_id: call_id(number) };
        if self.child.process.is_some() && self.child.try_send(&cancel).is_err() {
            tracing::warn!(session = %self.session.id, "cannot send a cancel to the worker");
        }
    }

    /// Sends a call to the worker, which is ready, as soon as a command slot is free.
    pub(super) fn send(&mut self, number: u64, ctx: &mut Context<Self>) {
        if self.calls.is_queued(number) {
            return;
        }
        if !self.calls.needs_slot(number) {
            return self.send_now(number, ctx);
        }

        match self.services.pool.slots.acquire(&self.session.id) {
            SlotRequest::Granted(slot) => {
                self.calls.assign_slot(number, slot);
                self.send_now(number, ctx);
            }
            SlotRequest::Queued(queued) => {
                let queued = queued.into_actor(self).map(move |slot, handle, ctx| {
                    // The table lives as long as the daemon.
                    if let Ok(slot) = slot {
                        handle.on_slot(number, slot, ctx);
                    }
                });

                let queued = ctx.spawn(queued);
                self.calls.queue(number, queued);
                let left = self.calls.time_left(number, Instant::now());
                self.set_wait(number, CallWait::Slot, COMMAND_PLACE_WAIT.min(left / 2), ctx);
            }
        }
    }

    /// Sends the calls that wait for a worker, as far as it may run them.
    pub(in crate::session) fn send_waiting(&mut self, ctx: &mut Context<Self>) {
        if self.child.is_ready() {
            for number in self.calls.unsent() {
                if self.may_send(number) {
                    self.send(number, ctx);
                }
            }
            self.publish_status();
        }
    }

    fn on_slot(&mut self, number: u64, slot: CommandSlot, ctx: &mut Context<Self>) {
        self.calls.assign_slot(number, slot);
        // The worker may have exited in the meantime without a demand for another one.
        match self.child.lifecycle.on_demand(Instant::now(), Demander::Call) {
            Demand::Use if self.may_send(number) => {
                self.send_now(number, ctx);
                self.publish_status();
            }
            Demand::Refuse(cause) => self.answer(number, ctx, |_| Err(CallError::Failed(cause))),
            other => {
                self.await_worker(number, ctx);
                self.apply_demand(other, ctx);
            }
        }
    }

    /// Gives an unsent call a limited time to wait for a worker.
    pub(super) fn await_worker(&mut self, number: u64, ctx: &mut Context<Self>) {
        let left = self.calls.time_left(number, Instant::now());
        self.set_wait(number, CallWait::Worker, self.ready_wait().min(left), ctx);
    }

    /// Handles the worker's report that a call was not run and that the next worker can run it. Returns false if the
    /// call gets the worker's reply instead.
    pub(super) fn send_to_next_worker(&mut self, number: u64, ctx: &mut Context<Self>) -> bool {
        let is_kept = self.child.ending.is_some() || self.jobs.any();
        if is_kept || !self.calls.take_back(number) {
            return false;
        }
        self.workspace_replaced = true;
        self.await_worker(number, ctx);
        self.note_idle(ctx);
        true
    }

    /// Fails a call because no command slot became free in time.
    fn on_slot_timeout(&mut self, number: u64, ctx: &mut Context<Self>) {
        let fullness = self.services.pool.slots.fullness(&self.session.id);
        self.answer(number, ctx, |_| Err(CallError::TooManyCommands(fullness)));
    }

    /// Limits the current wait of a call.
    fn set_wait(&mut self, number: u64, wait: CallWait, limit: Duration, ctx: &mut Context<Self>) {
        let due = Instant::now() + limit;
        self.calls.set_wait(number, wait, due);
        self.arm_call_timer(due, ctx);
    }

    /// Starts the timer of all calls, unless it expires before `due` anyway. It is not stopped when a call ends, because
    /// most calls end long before it expires.
    fn arm_call_timer(&mut self, due: Instant, ctx: &mut Context<Self>) {
        if self.call_timer.is_some_and(|(at, _)| at <= due) {
            return;
        }
        let wait = due.saturating_duration_since(Instant::now());
        let timer = ctx.run_later(wait, |handle, ctx| handle.on_call_timer(ctx));
        if let Some((_, old)) = self.call_timer.replace((due, timer)) {
            ctx.cancel_future(old);
        }
    }

    /// Ends the waits that have reached their limit.
    fn on_call_timer(&mut self, ctx: &mut Context<Self>) {
        self.call_timer = None;
        if self.calls.overdue(Instant::now()).iter().any(|it| self.waits_for_state(it.0)) {
            // Calls that are sent now wait for something else, so the list is made again.
            self.release_calls(ctx);
        }
        for (number, wait, due) in self.calls.overdue(Instant::now()) {
            match wait {
                CallWait::Worker => self.not_ready(number, ctx),
                CallWait::Slot => self.on_slot_timeout(number, ctx),
                // The worker may have been suspended as well, before it read the call.
                CallWait::Answer(limit) if STALL_THRESHOLD < due.elapsed() => {
                    self.set_wait(number, wait, limit, ctx);
                }
                CallWait::Answer(_) => self.on_answer_timeout(number, ctx),
            }
        }
        if let Some(due) = self.calls.next_due() {
            self.arm_call_timer(due, ctx);
        }
    }

    /// Sends a call to the worker. From here on it may have run.
    fn send_now(&mut self, number: u64, ctx: &mut Context<Self>) {
        let was_busy = self.calls.any_sent();
        let Some((mut call, left)) = self.calls.send(number, Instant::now()) else { return };

        // The session may have entered safe mode while the call waited. An approved call stays approved.
        call.safe_mode |= self.is_safe;
        self.jobs.call_sent();

        let offered = self.child.try_send(&ToWorker::ToolCall(call));
        if let Err(refused) = offered {
            let error = match refused {
                SendError::TooLong => CallError::TooLong,
                SendError::Full | SendError::Closed => CallError::NotResponding,
            };
            self.answer(number, ctx, |_| Err(error));
            return;
        }

        let limit = left + DEADLINE_SLACK;
        self.set_wait(number, CallWait::Answer(limit), limit, ctx);

        if self.services.call_journal.is_on() {
            self.record_later(LONG_CALL, ctx);
        }
        if !was_busy {
            self.on_busy(ctx);
        }
    }

    /// Answers one call. Starts the idle time if no other call is in flight.
    pub(super) fn answer(
        &mut self,
        number: u64,
        ctx: &mut Context<Self>,
        result: impl FnOnce(Duration) -> CallResult,
    ) {
        self.record_state_after_call(number, ctx);
        let (events, session) = (&self.services.events, &*self.session);
        let times = &self.services.metrics.calls;
        let journal = &self.services.call_journal;
        let tell = |call: &SessionCall, result: &CallResult, elapsed| {
            times.note(&call.spec.tool, outcome(result), elapsed);
            journal.record(session, call, result, elapsed, !self.services.pool.disk.is_low());
            publish_end(events, &session.id, call, result, elapsed);
        };
        for ended in self.calls.answer(number, result, tell) {
            ctx.cancel_future(ended);
        }
        self.note_idle(ctx);
    }

    /// Starts the idle time if no call is in flight.
    pub(super) fn note_idle(&mut self, ctx: &mut Context<Self>) {
        if !self.calls.any_sent() {
            self.end_questions_of_calls();
            // A call reports its job before it ends.
            self.client_left &= self.jobs.any();
            self.idle_since = Instant::now();
            if self.child.process.is_some() {
                self.on_idle(ctx);
            }
            self.end_if_drained(ctx);
            if self.needs_replacement() {
                self.restart_if_outdated(ctx);
            }
        }
        self.publish_status();
    }

    /// Fails a call because no worker was ready in time.
    pub(super) fn not_ready(&mut self, number: u64, ctx: &mut Context<Self>) {
        let why = match self.child.lifecycle.state() {
            State::Backoff { cause, .. }
            | State::Failed { cause, .. }
            | State::Draining { cause: Some(cause), .. } => cause.to_string(),
            State::Draining { cause: None, .. } => "the last one is ending".to_owned(),
            _ if self.link_notice().is_some() => {
                self.link_notice().map(|notice| notice.to_string()).unwrap_or_default()
            }
            _ if self.needs_replacement() => self.why_not_replaced(),
            _ => match self.child.lifecycle.why_absent() {
                Some(cause) => cause.to_string(),
                None => "it is starting".to_owned(),
            },
        };
        self.answer(number, ctx, |_| Err(CallError::NotReady(why)));
    }

    /// Handles a worker that exceeded a call's deadline and all allowances. It is not trusted any longer.
    pub(super) fn on_answer_timeout(&mut self, number: u64, ctx: &mut Context<Self>) {
        self.answer(number, ctx, |deadline| {
            Err(CallError::NoAnswer { after_s: deadline.as_secs().max(1) })
        });
        self.kill_worker(Cause::NotResponding, ctx);
    }
}

impl WorkerActor {
    /// Whether any call has no reply.
    pub(super) fn has_calls(&self) -> bool {
        self.calls.len() != 0
    }
}

/// End every call of the session; each call gets its own result.
#[derive(Debug, Message)]
#[rtype(result = "AbortedCalls")]
pub(crate) struct AbortCalls;

/// The calls that an abort ended.
#[derive(Debug, MessageResponse)]
pub(crate) struct AbortedCalls {
    pub(crate) calls: Vec<CallInfo>,
    /// Background jobs, which go on.
    pub(crate) jobs: Vec<RunningJob>,
}

impl Handler<AbortCalls> for WorkerActor {
    type Result = AbortedCalls;

    fn handle(&mut self, _: AbortCalls, ctx: &mut Self::Context) -> AbortedCalls {
        let now = Instant::now();
        let calls = self.calls.snapshot();
        let ended = calls.iter().map(|call| call_info(call, now)).collect();
        let all = [self.calls.unsent(), self.calls.sent()].concat();
        all.iter().for_each(|number| self.abort(*number, ctx));
        AbortedCalls { calls: ended, jobs: jobs(&self.jobs.snapshot(), now) }
    }
}

/// Return a credit of a streamed call: its output was passed on, so the worker may send more.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct OutputTaken(pub(crate) CallId);

impl Handler<OutputTaken> for WorkerActor {
    type Result = ();

    fn handle(&mut self, OutputTaken(call_id): OutputTaken, ctx: &mut Self::Context) {
        if self.calls.sent_number(&call_id).is_none() || self.child.process.is_none() {
            return;
        }
        let taken = ToWorker::OutputTaken { call_id: call_id.clone() };
        if self.child.try_send(&taken).is_err() {
            // The queue to the worker is full. Without credits the worker would never send output again.
            ctx.notify_later(OutputTaken(call_id), CREDIT_INTERVAL);
        }
    }
}
