//! The actor that owns one session's Pi process.
//!
//! Owns: the state machine of the process, its heartbeat, the commands without a response, and the prompts that wait
//! for the start.
//! Receives: [`SendPrompt`], [`EnsureStarted`] (from clients), the messages in [`super::requests`], [`Drain`] (from
//! [`super::PiPool`]), and the messages of every child handle ([`super::child_impl`]).
//! Blocks on: nothing.
//! Mailbox: [`MAILBOX`] messages; a sender waits until there is space.
//! Ends: with the daemon, or with its session.
//!
//! Invariants: every waiting caller gets exactly one reply, even if Pi crashes. A prompt that was written to Pi is
//! never written again.

use super::commands::PendingCommands;
use super::dialogs::Dialogs;
use super::history;
use super::turns::Turns;
use crate::children::{
    Child, DrainReason, EvictionReason, KillReason, LifecycleDriver, STALL_THRESHOLD, SendError,
};
use crate::errors::PiError;
use crate::pool::sessions::ProcessKind;
use crate::pool::snapshot::{Activity, PiSnapshot, ProcessSnapshot, Stage, StopReason};
use crate::session::owner::Owner;
use crate::session::services::SessionServices;
use crate::session::{FoundSession, SessionEntry};
use actix::prelude::*;
use quackd_process::Exit as ProcessExit;
use quackd_protocol::SessionId;
use quackd_protocol::limits::{MAX_PI_PROMPTS, PI_ABORT_LIMIT, PI_COMMAND_LIMIT, PI_STATE_WAIT};
use quackd_protocol::pi::{PiCommand, PiEnd, ToPiWorker, UiAnswer};
use quackd_supervision::{Cause, Demander, PI_WORKER, State};
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Size of the mailbox: messages of many clients of one session, and one frame at a time.
const MAILBOX: usize = 128;

/// Maximum number of clients that wait for Pi's state. Further clients get the last known state.
const MAX_STATE_WAITERS: usize = 64;

/// The caller that waits for the response to a command.
#[derive(Debug)]
pub(super) enum Waiter {
    /// A client's `say`.
    Say(oneshot::Sender<Result<PromptAccepted, PiError>>),
    /// An `abort`, which only waits for the acknowledgment.
    Abort(oneshot::Sender<()>),
    /// The callers in [`PiHandle::state_waiters`].
    State,
}

/// A prompt for a Pi that has not started yet.
#[derive(Debug)]
pub(super) struct QueuedPrompt {
    pub(super) number: u64,
    pub(super) message: String,
    pub(super) reply: oneshot::Sender<Result<PromptAccepted, PiError>>,
}

/// Owner of one session's Pi. Runs as an actor.
pub(crate) struct PiHandle {
    pub(super) session: SessionId,
    pub(super) name: String,
    pub(super) workspace: String,
    /// Path of Pi's session file. Empty if Pi has never reported one.
    pub(super) session_file: String,
    pub(super) services: Rc<SessionServices>,
    pub(super) owner: Owner,
    /// Where the state is published.
    pub(super) entry: Weak<SessionEntry>,
    /// Time of the last activity.
    pub(super) active: Instant,
    /// Pi's last reported state. `None` without a process.
    pub(super) state: Option<Rc<RawValue>>,
    pub(super) dialogs: Dialogs,
    pub(super) child: Child,
    /// Process ids of the worker and of Pi, as the worker reported them. For display only.
    pub(super) pids: Option<(u32, u32)>,
    pub(super) commands: PendingCommands<Waiter>,
    pub(super) unsent: VecDeque<QueuedPrompt>,
    /// Callers that wait for Pi's state.
    pub(super) state_waiters: Vec<oneshot::Sender<()>>,
    pub(super) turns: Turns,
    /// The newest turn when Pi's state was requested.
    pub(super) turn_at_request: u64,
    /// Time of the last frame from Pi.
    pub(super) heard: Instant,
    /// Pi's exit status, reported by the worker before the process is reaped.
    pub(super) end: Option<PiEnd>,
    /// Exit status of the process, while its last frames are still being read.
    pub(super) exited: Option<Option<ProcessExit>>,
    /// The reason why the supervisor killed it.
    pub(super) kill_reason: Option<KillReason>,
    pub(super) dialog_timer: Option<SpawnHandle>,
    /// The reason why the last process ended.
    pub(super) stopped: StopReason,
    /// The reason why the current process is evicted.
    pub(super) evicted: Option<EvictionReason>,
}

impl PiHandle {
    /// Creates the handle without a process.
    pub(super) fn new(
        found: &FoundSession,
        services: Rc<SessionServices>,
        owner: Owner,
        entry: Weak<SessionEntry>,
    ) -> Self {
        Self {
            session: found.session_id.clone(),
            name: found.session_name.clone(),
            workspace: found.workspace_path.clone(),
            session_file: found.pi_session_file.clone(),
            services,
            owner,
            entry,
            active: Instant::now(),
            state: None,
            dialogs: Dialogs::default(),
            child: Child::new(PI_WORKER, found.session_id.0.clone()),
            pids: None,
            commands: PendingCommands::default(),
            unsent: VecDeque::new(),
            state_waiters: Vec::new(),
            turns: Turns::default(),
            turn_at_request: 0,
            heard: Instant::now(),
            end: None,
            exited: None,
            kill_reason: None,
            dialog_timer: None,
            stopped: StopReason::default(),
            evicted: None,
        }
    }

    /// Updates the session's name, workspace and session file from the registry.
    fn update(&mut self, found: &FoundSession) {
        self.name.clone_from(&found.session_name);
        if !found.pi_session_file.is_empty() {
            self.session_file.clone_from(&found.pi_session_file);
        }
    }

    /// Whether a turn runs.
    pub(super) fn in_turn(&self) -> bool {
        self.turns.running().is_some()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.child.is_ready()
    }

    /// Whether a turn runs, or a caller or a dialog waits.
    pub(super) fn is_busy(&self) -> bool {
        let waits = self.commands.count("prompt") != 0 || !self.unsent.is_empty();
        self.in_turn() || waits || self.dialogs.any()
    }

    /// Publishes the state.
    pub(super) fn show(&mut self) {
        let stage = match self.end {
            Some(_) => Stage::Gone,
            None => Stage::of(self.child.worker.state()),
        };
        if stage == Stage::Gone {
            self.state = None;
        }
        let child = self.child.snapshot();
        let (is_busy, has_process) = (self.is_busy(), child.has_process);
        let is_free = stage == Stage::Here && !is_busy;
        let free_since = is_free.then_some(self.active);
        let process = ProcessSnapshot { child, stage, activity: self.activity(), free_since };
        self.services.table.publish(&self.entry, ProcessKind::Pi, |session| {
            let has_run = session.pi.has_run || has_process;
            let (state, dialogs) = (self.state.clone(), self.dialogs.announced());
            session.pi = PiSnapshot { process, pids: self.pids, is_busy, has_run, state, dialogs };
        });
    }

    fn activity(&self) -> Activity {
        let calls = self.commands.count("prompt") + self.unsent.len();
        match self.child.worker.state() {
            _ if self.dialogs.any() => Activity::Waiting,
            State::Failed { cause, .. } => Activity::Failed(cause.clone()),
            _ if self.in_turn() || calls != 0 => {
                Activity::Working { calls, jobs: 0, turn: self.in_turn() }
            }
            State::Absent => Activity::Stopped(self.stopped.clone()),
            // The executable may still be missing, so report the old reason.
            State::Starting { .. } if self.child.process.is_none() => {
                Activity::Stopped(self.stopped.clone())
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

    /// Records activity of Pi.
    pub(super) fn touch(&mut self) {
        self.heard = Instant::now();
        self.active = self.heard;
    }

    /// Sends a command to the running Pi.
    pub(super) fn command(&mut self, command: PiCommand, waiter: Waiter, ctx: &mut Context<Self>) {
        let number = self.commands.next_number();
        self.command_as(number, command, waiter, ctx);
    }

    pub(super) fn command_as(
        &mut self,
        number: u64,
        command: PiCommand,
        waiter: Waiter,
        ctx: &mut Context<Self>,
    ) {
        let name = command.name();
        let frame = ToPiWorker::Command { number, command };
        match self.child.try_send(&frame) {
            Ok(()) => {}
            Err(SendError::TooLong) => return fail(waiter, &PiError::TooLong),
            Err(SendError::NotTaken) => return fail(waiter, &PiError::Stdin),
        }
        let now = Instant::now();
        self.active = now;
        self.commands.insert(number, name, now, waiter);
        self.give_time(number, PI_COMMAND_LIMIT, ctx);
        self.show();
    }

    /// Starts the timeout of a command.
    fn give_time(&self, number: u64, limit: Duration, ctx: &mut Context<Self>) {
        let due = Instant::now() + limit;
        ctx.run_later(limit, move |handle, ctx| match STALL_THRESHOLD < due.elapsed() {
            // Pi may have been suspended as well.
            true => handle.give_time(number, PI_ABORT_LIMIT, ctx),
            false => handle.timed_out(number, ctx),
        });
    }

    /// Handles a command that timed out.
    fn timed_out(&mut self, number: u64, ctx: &mut Context<Self>) {
        let Some(sent) = self.commands.give_up(number) else { return };
        // Upstream's clients use the same timeout. A Pi without any output since then is replaced. A Pi that works or
        // waits for the user may answer slowly.
        let is_mute = self.heard <= sent.at;
        fail(sent.waiter, &PiError::TimedOut { command: sent.name });
        self.show();
        if is_mute && sent.name == "prompt" {
            self.kill_for_cause(Cause::NotResponding, KillReason::NoAnswer, ctx);
        }
    }

    /// Requests Pi's state, unless a request is pending.
    pub(super) fn ask_state(
        &mut self,
        waiter: Option<oneshot::Sender<()>>,
        ctx: &mut Context<Self>,
    ) {
        let now = Instant::now();
        let is_mute = match self.commands.oldest("get_state") {
            Some(at) => PI_STATE_WAIT < now.saturating_duration_since(at) && self.heard <= at,
            None => false,
        };
        let is_coming =
            self.is_ready() || matches!(self.child.worker.state(), State::Starting { .. });
        // Dropping the sender tells the caller to continue with the last known state.
        if let Some(waiter) = waiter
            && is_coming
            && !is_mute
            && self.state_waiters.len() < MAX_STATE_WAITERS
        {
            self.state_waiters.push(waiter);
        }
        if self.is_ready() && self.commands.count("get_state") == 0 {
            self.turn_at_request = self.turns.last();
            self.command(PiCommand::GetState, Waiter::State, ctx);
        }
    }

    /// Sends the prompts that waited for the start.
    pub(super) fn flush(&mut self, ctx: &mut Context<Self>) {
        while let Some(QueuedPrompt { number, message, reply }) = self.unsent.pop_front() {
            self.command_as(number, PiCommand::Prompt { message }, Waiter::Say(reply), ctx);
        }
        self.show();
    }

    /// Returns an error to the callers that wait for the start.
    pub(super) fn refuse_unsent(&mut self, error: &PiError) {
        for unsent in self.unsent.drain(..) {
            // If the caller has stopped waiting, it has already got an error.
            unsent.reply.send(Err(error.clone())).ok();
        }
        self.show();
    }

    /// Closes all dialogs, because the turn or Pi has ended. Cancels them in Pi if it still runs.
    pub(super) fn end_dialogs(&mut self) {
        let ended = self.dialogs.end();
        for id in ended {
            self.cancel(&id);
            self.publish_closed(&id, super::dialogs::CloseReason::Ended);
        }
        self.show();
    }

    /// Tells Pi that a dialog is canceled.
    pub(super) fn cancel(&self, id: &str) {
        let answer =
            UiAnswer { id: id.to_owned(), cancelled: Some(true.into()), ..UiAnswer::default() };
        self.send_answer(answer);
    }

    pub(super) fn send_answer(&self, answer: UiAnswer) {
        let is_there = self.child.process.is_some() && self.end.is_none();
        if is_there && self.child.try_send(&ToPiWorker::UiAnswer(answer)).is_err() {
            tracing::warn!(session = %self.session, "cannot send an answer to the Pi worker");
        }
    }
}

/// Returns an error to the caller of a failed command.
pub(super) fn fail(waiter: Waiter, error: &PiError) {
    match waiter {
        Waiter::Say(reply) => drop(reply.send(Err(error.clone()))),
        // Dropping the sender tells the caller that no response arrived.
        Waiter::Abort(reply) => drop(reply),
        Waiter::State => {}
    }
}

impl Actor for PiHandle {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
    }
}

/// Send a prompt to Pi, and start Pi if necessary. The reply arrives when Pi has accepted or refused the prompt.
#[derive(Debug, Message)]
#[rtype(result = "Result<PromptAccepted, PiError>")]
pub(crate) struct SendPrompt {
    pub(crate) message: String,
    pub(crate) found: FoundSession,
}

/// Pi's response to a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PromptAccepted {
    /// Whether it was accepted.
    pub(crate) success: bool,
    /// Error if the prompt was refused.
    pub(crate) error: Option<String>,
    /// Number of the session's last event before the prompt, if it was accepted.
    pub(crate) seq: Option<u64>,
    /// Id of its turn, unless Pi handled it without one.
    pub(crate) turn: Option<u64>,
}

impl Handler<SendPrompt> for PiHandle {
    type Result = ResponseFuture<Result<PromptAccepted, PiError>>;

    fn handle(
        &mut self,
        SendPrompt { message, found }: SendPrompt,
        ctx: &mut Self::Context,
    ) -> Self::Result {
        self.update(&found);
        match self.child.ending {
            Some(DrainReason::Shutdown) => return Box::pin(async { Err(PiError::ShuttingDown) }),
            Some(DrainReason::Deleted) => return Box::pin(async { Err(PiError::Deleted) }),
            None => {}
        }
        if MAX_PI_PROMPTS <= self.unsent.len() + self.commands.count("prompt") {
            return Box::pin(async { Err(PiError::TooMany) });
        }
        let (reply, said) = oneshot::channel();
        if self.is_ready() {
            self.command(PiCommand::Prompt { message }, Waiter::Say(reply), ctx);
        } else {
            let number = self.commands.next_number();
            self.unsent.push_back(QueuedPrompt { number, message, reply });
            ctx.run_later(PI_COMMAND_LIMIT, move |handle, _| handle.give_up_unsent(number));
            self.demand(Demander::Call, ctx);
        }
        self.show();
        // The sender is dropped without a reply only at shutdown.
        Box::pin(async { said.await.unwrap_or(Err(PiError::ShuttingDown)) })
    }
}

impl PiHandle {
    fn give_up_unsent(&mut self, number: u64) {
        let Some(at) = self.unsent.iter().position(|unsent| unsent.number == number) else {
            return;
        };
        if let Some(unsent) = self.unsent.remove(at) {
            unsent.reply.send(Err(PiError::TimedOut { command: "prompt" })).ok();
        }
        self.show();
    }
}

/// Start Pi soon, because a client attached. Retries after a failure.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct EnsureStarted {
    pub(crate) found: FoundSession,
}

impl Handler<EnsureStarted> for PiHandle {
    type Result = ();

    fn handle(&mut self, EnsureStarted { found }: EnsureStarted, ctx: &mut Self::Context) {
        self.update(&found);
        if self.child.ending.is_none() {
            self.demand(Demander::Attach, ctx);
        }
    }
}

/// Accept no more prompts, let a turn finish until `until`, then stop Pi. The reply arrives after the exit.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Drain {
    pub(super) until: Instant,
    pub(super) ending: DrainReason,
}

impl Handler<Drain> for PiHandle {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Drain { until, ending }: Drain, ctx: &mut Self::Context) -> Self::Result {
        self.child.ending = Some(ending);
        self.refuse_unsent(match ending {
            DrainReason::Shutdown => &PiError::ShuttingDown,
            DrainReason::Deleted => &PiError::Deleted,
        });
        let gone = self.kill_at(until, ctx);
        if gone.is_some() {
            self.drain(ctx);
        }
        let unused = (ending == DrainReason::Deleted).then(|| PathBuf::from(&self.session_file));
        Box::pin(async {
            if let Some(gone) = gone {
                // A stopped actor has no process.
                gone.await.ok();
            }
            if let Some(file) = unused {
                let discard = move || history::discard_unused_blocking(&file);
                actix_rt::task::spawn_blocking(discard).await.ok();
            }
        })
    }
}
