//! Records states of the session's files: when its worker is ready, and after calls that may change files. No call waits
//! for it.

use super::actor::SessionActor;
use super::checkpoints::{SessionFiles, StatesError, records, run};
use super::worker::command_text;
use actix::prelude::*;
use quackd_protocol::isolate::{Checkpoint, CheckpointAction, FromIsolate, MAX_CHECKPOINT_CALLS};
use quackd_protocol::mask::{cut_at_word, masked};
use quackd_protocol::tools::{self, MCP_CALL, runs_commands};
use serde_json::json;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time from the last call to the record: further calls often follow at once.
const DELAY: Duration = Duration::from_millis(300);

/// Longest time in which running calls put off a record.
const MAX_DELAY: Duration = Duration::from_secs(10);

/// Longest beginning of a command in the name of a call, in bytes.
const MAX_COMMAND: usize = 160;

impl SessionActor {
    fn records_states(&self) -> bool {
        records(&self.services, self.worker.isolated.is_some())
    }

    /// Records the state before the first call of a new worker. Only its session changes a copy, and the first state of a
    /// copy is recorded when it is made.
    pub(super) fn record_first_state(&mut self, ctx: &mut Context<Self>) {
        let is_copy = self.worker.isolated.is_some();
        if self.records_states() && !is_copy && !self.checkpoints.is_recording {
            self.checkpoints.since = Some(Instant::now());
            self.record_state(ctx);
        }
    }

    /// Remembers a call that may change files.
    pub(super) fn note_call(&mut self, number: u64, tool: &str, arguments: &str) {
        if self.records_states() {
            let name = name_of(tool, arguments);
            self.checkpoints.running.extend(name.map(|name| (number, name)));
        }
    }

    /// Records the state soon if a call has ended that may have changed files.
    pub(super) fn record_state_after_call(&mut self, number: u64, ctx: &mut Context<Self>) {
        if let Some(name) = self.checkpoints.running.remove(&number) {
            self.record_state_after(name, ctx);
        }
    }

    /// Records the state soon, because a call has ended that may have changed files. `what` names the call.
    pub(super) fn record_state_after(&mut self, what: String, ctx: &mut Context<Self>) {
        if !self.records_states() {
            return;
        }
        let part = &mut self.checkpoints;
        if part.calls.len() < MAX_CHECKPOINT_CALLS {
            part.calls.push(what);
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
        if part.since.take().is_none() || self.services.pool.disk.is_low() {
            return;
        }
        part.is_recording = true;
        let mut calls = std::mem::take(&mut part.calls);
        // The state has also the changes that they have made so far.
        calls.extend(part.running.values().cloned());
        calls.truncate(MAX_CHECKPOINT_CALLS);
        let action = CheckpointAction::Take { calls, while_running: self.has_calls() };
        let files = SessionFiles {
            session: self.session.clone(),
            workspace: self.workspace.clone(),
            is_isolated: self.worker.isolated.is_some(),
            hidden: self.worker.policy.hidden.clone(),
        };
        let services = Rc::clone(&self.services);
        let running = async move { run(&services, files, action).await };
        ctx.spawn(running.into_actor(self).map(|answer, actor, ctx| actor.recorded(answer, ctx)));
    }

    fn recorded(&mut self, answer: Result<FromIsolate, StatesError>, ctx: &mut Context<Self>) {
        self.checkpoints.is_recording = false;
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
                tracing::warn!(session = %self.session, %error, "state of the files not recorded");
            }
        }
        self.arm_record(ctx);
    }

    fn publish_checkpoint(&self, taken: &Checkpoint) {
        const NAME: &str = "checkpoint_created";
        let event = || json!({ "type": NAME, "number": taken.number, "files": taken.files, "calls": taken.calls });
        self.services.events.publish(&self.session, NAME, event);
    }
}

/// Name of a call for the record of the state after it. `None` if the call changes no file.
fn name_of(tool: &str, arguments: &str) -> Option<String> {
    if !may_change_files(tool) {
        return None;
    }
    let command = runs_commands(tool).then(|| command_text(arguments)).flatten();
    Some(match command {
        Some(command) => format!("{tool}: {}", masked(cut_at_word(&command, MAX_COMMAND))),
        None => tool.to_owned(),
    })
}

/// Whether a call of a tool may change files of the workspace.
fn may_change_files(tool: &str) -> bool {
    tool == MCP_CALL || tools::find(tool).is_some_and(|row| !row.reads_only && !row.is_job_tool)
}
