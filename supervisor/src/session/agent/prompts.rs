//! Commands and prompts for a session's agent, and the published state of the agent.
//!
//! Invariants: every waiting caller gets exactly one reply, even if the agent crashes. A prompt that was sent is never
//! sent again.

use super::ExitReason;
use super::actor::{AgentActor, CommandReply, QueuedCommand, Waiter};
use crate::children::{
    DrainReason, KillReason, LifecycleDriver, ProcessKind, STALL_THRESHOLD, SendError, StopReason,
};
use crate::errors::AgentError;
use crate::pool::snapshot::{Activity, AgentSnapshot, ProcessSnapshot, Stage};
use crate::session::FoundSession;
use actix::prelude::*;
use quackd_protocol::agent::{AgentCommand, ToAgent, UiAnswer};
use quackd_protocol::limits::{
    AGENT_ABORT_LIMIT, AGENT_COMMAND_LIMIT, AGENT_STATE_WAIT, MAX_AGENT_PROMPTS,
};
use quackd_supervision::{Cause, Demander, State};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Maximum number of clients that wait for the agent's state. Further clients get the last known state.
const MAX_STATE_WAITERS: usize = 64;

/// Time limit of slow commands: a summary, and a shell command of the user.
const LONG_COMMAND_LIMIT: Duration = Duration::from_secs(600);

/// Returns the time limit of a command.
fn limit_of(name: &str) -> Duration {
    match name {
        "compact" | "bash" => LONG_COMMAND_LIMIT,
        _ => AGENT_COMMAND_LIMIT,
    }
}

/// Commands of clients after which an agent asks its model.
const MESSAGES: [&str; 4] = ["prompt", "steer", "follow_up", "compact"];

impl AgentActor {
    pub(super) fn is_agent_ready(&self) -> bool {
        self.child.is_ready()
    }

    /// Publishes the state.
    pub(super) fn publish_agent(&mut self) {
        let stage = match self.end {
            Some(_) => Stage::Gone,
            None => Stage::of(self.child.lifecycle.state()),
        };
        if stage == Stage::Gone {
            self.state = None;
        }

        let child = self.child.snapshot();
        let (is_busy, has_process) = (self.is_busy(), child.has_process);
        let is_free = stage == Stage::Here && !is_busy;
        let free_since = is_free.then_some(self.active);
        let process = ProcessSnapshot { child, stage, activity: self.agent_activity(), free_since };

        self.services.table.publish(&self.entry, ProcessKind::Agent, |session| {
            let has_run = session.agent.has_run || has_process;
            let (state, dialogs) = (self.state.clone(), self.dialogs.announced());
            let (engine, pids, turn) = (self.engine, self.pids, self.turns.running());

            let old = std::mem::take(&mut session.agent);
            session.agent = AgentSnapshot {
                engine,
                process,
                pids,
                is_busy,
                turn,
                has_run,
                state,
                dialogs,
                ..old
            };
        });
    }

    fn agent_activity(&self) -> Activity {
        let calls = self.commands.count("prompt") + self.unsent.len();

        match self.child.lifecycle.state() {
            _ if self.dialogs.any() => Activity::Waiting,
            State::Failed { cause, .. } => Activity::Failed(cause.clone()),
            _ if self.in_turn() || calls != 0 => {
                Activity::Working { calls, jobs: 0, turn: self.in_turn() }
            }
            State::Absent => Activity::Stopped(self.child.stopped.clone()),
            // The executable may still be missing, so report the old reason.
            State::Starting { .. } if self.child.process.is_none() => {
                Activity::Stopped(self.child.stopped.clone())
            }
            State::Backoff { cause, .. } => Activity::Stopped(StopReason::Died(cause.clone())),
            _ => {
                let limit = self.services.daemon.config.worker.idle.value;
                let until = Some(self.active + limit);
                let until = until.filter(|_| self.child.is_ready() && self.end.is_none());
                Activity::Idle { since: self.active, until }
            }
        }
    }

    /// Records activity of the agent.
    pub(super) fn touch_agent(&mut self) {
        self.heard = Instant::now();
        self.active = self.heard;
    }

    /// Sends a command to the running agent.
    pub(super) fn send_command(
        &mut self,
        command: AgentCommand,
        waiter: Waiter,
        ctx: &mut Context<Self>,
    ) {
        let number = self.commands.next_number();
        self.send_command_as(number, command, waiter, ctx);
    }

    pub(super) fn send_command_as(
        &mut self,
        number: u64,
        command: AgentCommand,
        waiter: Waiter,
        ctx: &mut Context<Self>,
    ) {
        let name = command.name().to_owned();
        let limit = limit_of(&name);
        let frame = ToAgent::Command { number, command };
        match self.child.try_send(&frame) {
            Ok(()) => {}
            Err(SendError::TooLong) => return fail(waiter, &AgentError::TooLong),
            Err(SendError::Full | SendError::Closed) => {
                let reason = ExitReason::Killed(KillReason::ClosedStdin);
                return fail(waiter, &self.exit_error(reason));
            }
        }
        if matches!(waiter, Waiter::Client(_)) && MESSAGES.contains(&name.as_str()) {
            self.work.refill();
        }
        let now = Instant::now();
        self.active = now;
        self.commands.insert(number, name, now, waiter);
        self.give_command_time(number, limit, ctx);
        self.publish_agent();
    }

    /// Starts the timeout of a command.
    fn give_command_time(&self, number: u64, limit: Duration, ctx: &mut Context<Self>) {
        let due = Instant::now() + limit;
        ctx.run_later(limit, move |handle, ctx| {
            if STALL_THRESHOLD < due.elapsed() {
                // The agent may have been suspended as well.
                handle.give_command_time(number, AGENT_ABORT_LIMIT, ctx);
            } else {
                handle.command_timed_out(number, ctx);
            }
        });
    }

    /// Handles a command that timed out.
    fn command_timed_out(&mut self, number: u64, ctx: &mut Context<Self>) {
        let Some(sent) = self.commands.give_up(number) else { return };
        // Upstream's clients use the same timeout. An agent without any output since then is replaced. An agent that
        // works or waits for the user may answer slowly.
        let is_mute = self.heard <= sent.at;
        let (command, limit) = (sent.name.clone().into_owned(), limit_of(&sent.name));
        fail(sent.waiter, &AgentError::TimedOut { engine: self.engine, command, limit });
        self.publish_agent();
        if is_mute && sent.name == "prompt" {
            self.kill_for(Cause::NotResponding, KillReason::NoAnswer, ctx);
        }
    }

    /// Requests the agent's state, unless a request is pending.
    pub(super) fn ask_state(
        &mut self,
        waiter: Option<oneshot::Sender<()>>,
        ctx: &mut Context<Self>,
    ) {
        let now = Instant::now();
        let is_mute = match self.commands.oldest("get_state") {
            Some(at) => AGENT_STATE_WAIT < now.saturating_duration_since(at) && self.heard <= at,
            None => false,
        };
        let is_coming =
            self.is_agent_ready() || matches!(self.child.lifecycle.state(), State::Starting { .. });
        // Dropping the sender tells the caller to continue with the last known state.
        if let Some(waiter) = waiter
            && is_coming
            && !is_mute
            && self.state_waiters.len() < MAX_STATE_WAITERS
        {
            self.state_waiters.push(waiter);
        }
        if self.is_agent_ready() && self.commands.count("get_state") == 0 {
            self.turn_at_request = self.turns.last();
            self.send_command(AgentCommand::GetState, Waiter::State, ctx);
        }
    }

    /// Sends the prompts that waited for the start.
    pub(super) fn send_prompts(&mut self, ctx: &mut Context<Self>) {
        while let Some(QueuedCommand { number, command, waiter }) = self.unsent.pop_front() {
            self.send_command_as(number, command, waiter, ctx);
        }
        self.publish_agent();
    }

    /// Returns an error to the callers that wait for the start.
    pub(super) fn refuse_unsent(&mut self, error: &AgentError) {
        for unsent in self.unsent.drain(..) {
            fail(unsent.waiter, error);
        }
        self.publish_agent();
    }

    /// Closes all dialogs, because the turn or the agent has ended. Cancels them in the agent if it still runs.
    pub(super) fn end_dialogs(&mut self) {
        let ended = self.dialogs.end();
        for id in ended {
            self.cancel_dialog(&id);
            self.publish_closed(&id, crate::approvals::CloseReason::Ended);
        }
        self.publish_agent();
    }

    /// Tells the agent that a dialog is canceled.
    pub(super) fn cancel_dialog(&self, id: &str) {
        let answer =
            UiAnswer { id: id.to_owned(), cancelled: Some(true.into()), ..UiAnswer::default() };
        self.send_answer(answer);
    }

    pub(super) fn send_answer(&self, answer: UiAnswer) {
        let is_there = self.child.process.is_some() && self.end.is_none();
        if is_there && self.child.try_send(&ToAgent::UiAnswer(answer)).is_err() {
            tracing::warn!(session = %self.session.id, "cannot send an answer to the Pi worker");
        }
    }
}

/// Returns an error to the caller of a failed command.
pub(super) fn fail(waiter: Waiter, error: &AgentError) {
    match waiter {
        Waiter::Client(reply) => drop(reply.send(Err(error.clone()))),
        // Dropping the sender tells the caller that no response arrived.
        Waiter::Abort(reply) => drop(reply),
        Waiter::State => {}
    }
}

/// Send a command to the agent, and start it if necessary. The reply to a prompt arrives when it is accepted or
/// refused.
#[derive(Debug, Message)]
#[rtype(result = "Result<CommandReply, AgentError>")]
pub(crate) struct SendCommand {
    pub(crate) command: AgentCommand,
    pub(crate) found: FoundSession,
}

impl Handler<SendCommand> for AgentActor {
    type Result = ResponseFuture<Result<CommandReply, AgentError>>;

    fn handle(
        &mut self,
        SendCommand { command, found }: SendCommand,
        ctx: &mut Self::Context,
    ) -> Self::Result {
        let (reply, said) = oneshot::channel();
        self.learn(&found);
        self.queue_command(command, Waiter::Client(reply), ctx);
        // The sender is dropped without a reply only at shutdown.
        Box::pin(async { said.await.unwrap_or(Err(AgentError::ShuttingDown)) })
    }
}

/// Start the agent soon, because a client attached. Retries after a failure.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct StartAgent(pub(crate) FoundSession);

impl Handler<StartAgent> for AgentActor {
    type Result = ();

    fn handle(&mut self, StartAgent(found): StartAgent, ctx: &mut Self::Context) {
        self.learn(&found);
        if self.child.ending.is_none() {
            self.demand(Demander::Attach, ctx);
        }
    }
}

impl AgentActor {
    /// Takes the session's name, and its session file if another program has changed it. The look-up may be older than the
    /// actor's other facts, which [`SetAgent`](super::SetAgent) keeps current.
    fn learn(&mut self, found: &FoundSession) {
        self.session.set_name(&found.session_name);
        let file = &found.pi_session_file;
        // The agent may have reported a new file since the look-up.
        if !file.is_empty() && self.registry_file != *file {
            self.registry_file.clone_from(file);
            self.session_file.clone_from(file);
        }
    }

    /// Sends a command, as soon as the agent runs.
    fn queue_command(&mut self, command: AgentCommand, waiter: Waiter, ctx: &mut Context<Self>) {
        match self.child.ending {
            Some(DrainReason::Shutdown) => return fail(waiter, &AgentError::ShuttingDown),
            Some(DrainReason::Deleted) => return fail(waiter, &AgentError::Deleted),
            None => {}
        }
        if MAX_AGENT_PROMPTS <= self.unsent.len() + self.commands.len_of_clients() {
            return fail(waiter, &AgentError::TooMany);
        }
        self.end_if_replaced(ctx);
        if self.is_agent_ready() {
            self.send_command(command, waiter, ctx);
        } else {
            let number = self.commands.next_number();
            self.unsent.push_back(QueuedCommand { number, command, waiter });
            ctx.run_later(AGENT_COMMAND_LIMIT, move |handle, _| handle.give_up_unsent(number));
            self.demand(Demander::Call, ctx);
        }
        self.publish_agent();
    }

    fn give_up_unsent(&mut self, number: u64) {
        let Some(at) = self.unsent.iter().position(|unsent| unsent.number == number) else {
            return;
        };
        if let Some(unsent) = self.unsent.remove(at) {
            let command = unsent.command.name().to_owned();
            let (engine, limit) = (self.engine, AGENT_COMMAND_LIMIT);
            fail(unsent.waiter, &AgentError::TimedOut { engine, command, limit });
        }
        self.publish_agent();
    }
}
