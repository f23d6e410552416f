//! Records states of the session's files: when its worker is ready, and after calls that may change files. Only the first
//! such call waits for it, as long as for a worker: without a state before it, nothing could be taken back.

use super::actor::WorkerActor;
use super::unrecorded::ChangingCall;
use crate::events::SessionCall;
use crate::session::checkpoints::{SessionFiles, StatesError, records, run};
use actix::prelude::*;
use quackd_protocol::isolate::{Checkpoint, CheckpointAction, FromIsolate, MAX_CHECKPOINT_CALLS};
use quackd_protocol::mask::{cut_at_word, masked};
use quackd_protocol::tools::{MCP_CALL, OPEN_TERMINAL};
use serde_json::json;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time from the last call to the record: further calls often follow at once.
const DELAY: Duration = Duration::from_millis(300);

/// Longest time in which running calls put off a record.
const MAX_DELAY: Duration = Duration::from_secs(10);

/// Longest beginning of a command in the name of a call, in bytes.
const MAX_COMMAND: usize = 160;

impl WorkerActor {
    fn records_states(&self) -> bool {
        self.far.is_none() && records(&self.services, self.isolated.is_some())
    }

    /// Records the state before the first call of a new worker. Only its session changes a copy, and the first state of a
    /// copy is recorded when it is made.
    pub(super) fn record_first_state(&mut self, ctx: &mut Context<Self>) {
        let is_copy = self.isolated.is_some();
        if self.records_states() && !is_copy && !self.checkpoints.is_recording {
            self.checkpoints.since = Some(Instant::now());
            // The waiting calls have changed nothing yet.
            self.record_state_after_calls(Vec::new(), ctx);
        }
        let part = &mut self.checkpoints;
        part.holds_calls = part.is_recording && !part.is_begun;
    }

    /// Whether the call waits for the first state of the files.
    pub(super) fn waits_for_state(&self, number: u64) -> bool {
        self.checkpoints.holds_calls && self.checkpoints.running.contains_key(&number)
    }

    /// Sends the calls that wait for the first state: it is recorded, or one of them has waited long enough.
    pub(super) fn release_calls(&mut self, ctx: &mut Context<Self>) {
        if std::mem::take(&mut self.checkpoints.holds_calls) {
            self.send_waiting(ctx);
        }
    }

    /// Remembers a call that may change files.
    pub(super) fn note_call(&mut self, number: u64, call: &SessionCall) {
        if self.records_states() {
            let call = changing_call(call);
            self.checkpoints.running.extend(call.map(|call| (number, call)));
        }
    }

    /// Records the state soon if a call has ended that may have changed files.
    pub(super) fn record_state_after_call(&mut self, number: u64, ctx: &mut Context<Self>) {
        if let Some(call) = self.checkpoints.running.remove(&number) {
            self.record_state_after(call, ctx);
        }
    }

    /// Records the state soon, because a call has ended that may have changed files.
    pub(super) fn record_state_after(&mut self, call: ChangingCall, ctx: &mut Context<Self>) {
        if !self.records_states() {
            return;
        }
        let part = &mut self.checkpoints;
        if part.calls.len() < MAX_CHECKPOINT_CALLS {
            part.calls.push(call);
        }
        part.since.get_or_insert_with(Instant::now);
        self.arm_record(ctx);
    }

    fn arm_record(&mut self, ctx: &mut Context<Self>) {
        let Some(since) = self.checkpoints.since.filter(|_| !self.checkpoints.is_recording) else {
            return;
        };
        // Quick calls one after the other put it off no longer than a long one.
        let delay = DELAY.min(MAX_DELAY.saturating_sub(since.elapsed()));
        let timer = ctx.run_later(delay, |actor, ctx| actor.on_record_timer(ctx));
        if let Some(earlier) = self.checkpoints.timer.replace(timer) {
            ctx.cancel_future(earlier);
        }
    }

    fn on_record_timer(&mut self, ctx: &mut Context<Self>) {
        self.checkpoints.timer = None;
        let is_due = self.checkpoints.since.is_some_and(|since| MAX_DELAY <= since.elapsed());
        if self.has_calls() && !is_due {
            return self.arm_record(ctx);
        }
        self.record_state(ctx);
    }

    fn record_state(&mut self, ctx: &mut Context<Self>) {
        let part = &mut self.checkpoints;
        let mut calls = std::mem::take(&mut part.calls);
        // The state has also the changes that they have made so far.
        calls.extend(part.running.values().cloned());
        calls.truncate(MAX_CHECKPOINT_CALLS);
        self.record_state_after_calls(calls, ctx);
    }

    fn record_state_after_calls(&mut self, calls: Vec<ChangingCall>, ctx: &mut Context<Self>) {
        let part = &mut self.checkpoints;
        if part.since.take().is_none() || self.services.pool.disk.is_low() {
            return;
        }
        part.is_recording = true;
        let by_commands = calls.iter().any(|call| call.by_commands);
        let while_running = !calls.is_empty() && self.has_calls();
        let calls = calls.into_iter().map(|call| call.name).collect();
        let action = CheckpointAction::Take { calls, by_commands, while_running };
        let files = SessionFiles {
            session: self.session.id.clone(),
            workspace: self.session.workspace.clone(),
            is_isolated: self.isolated.is_some(),
            hidden: self.policy.hidden.clone(),
        };
        let services = Rc::clone(&self.services);
        let running = async move { run(&services, files, action).await };
        ctx.spawn(running.into_actor(self).map(|answer, actor, ctx| actor.recorded(answer, ctx)));
    }

    fn recorded(&mut self, answer: Result<FromIsolate, StatesError>, ctx: &mut Context<Self>) {
        self.checkpoints.is_recording = false;
        self.checkpoints.is_begun = true;
        match answer {
            Ok(FromIsolate::Recorded(taken)) => {
                self.checkpoints.has_failed = false;
                if let Some(taken) = taken {
                    self.publish_checkpoint(&taken);
                }
            }
            Ok(_) | Err(_) if self.checkpoints.has_failed => {}
            Ok(_) => self.checkpoints.has_failed = true,
            Err(error) => {
                self.checkpoints.has_failed = true;
                tracing::warn!(session = %self.session.id, %error, "state of the files not recorded");
            }
        }
        self.release_calls(ctx);
        self.arm_record(ctx);
    }

    fn publish_checkpoint(&self, taken: &Checkpoint) {
        const NAME: &str = "checkpoint_created";
        let event = || json!({ "type": NAME, "number": taken.number, "files": taken.files, "calls": taken.calls });
        self.services.events.publish(&self.session.id, NAME, event);
    }
}

/// Describes a call for the record of the state after it. `None` if the call changes no file.
fn changing_call(call: &SessionCall) -> Option<ChangingCall> {
    if !call.may_change_files() {
        return None;
    }
    let tool = match call.spec.tool.as_str() {
        OPEN_TERMINAL => "run",
        tool => tool,
    };
    let name = match &call.facts.command {
        Some(command) => format!("{tool}: {}", masked(cut_at_word(command, MAX_COMMAND))),
        None => tool.to_owned(),
    };
    Some(ChangingCall { name, by_commands: call.runs_commands() || tool == MCP_CALL })
}
