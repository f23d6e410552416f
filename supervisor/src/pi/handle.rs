//! One session's Pi as an actor: the only owner of its process.
//!
//! Owns: the state machine of the process, its heartbeat, the commands that Pi has not answered and the prompts
//! that wait for it to start.
//! Receives: [`Say`], [`Wake`] (clients) and what stands in [`super::asking`], [`Retire`], [`Drain`]
//! ([`super::Pis`]), frames and the end of the channel ([`super::process`]).
//! Blocks on: nothing.
//! Mailbox: [`MAILBOX`] messages; a sender waits for room.
//! Ends: with the daemon, or with its session.
//!
//! Invariants: who waits is answered exactly once, also when Pi dies. A prompt that was written to Pi is never
//! written again.

use super::commands::Commands;
use super::error::PiError;
use super::process::{PiProcess, Refused};
use super::view::View;
use crate::registry::{FoundSession, Registry};
use crate::services::Services;
use crate::worker_handle::Ending;
use actix::WeakAddr;
use actix::prelude::*;
use quackd_process::{Exit as ProcessExit, SessionPaths};
use quackd_protocol::SessionId;
use quackd_protocol::limits::{
    HEARTBEAT_BUSY, HEARTBEAT_IDLE, HEARTBEAT_KILL, HEARTBEAT_MISSED, MAX_PI_PROMPTS,
    PI_COMMAND_LIMIT, PI_STATE_WAIT,
};
use quackd_protocol::pi::{PiCommand, PiEnd, ToPiWorker, UiAnswer};
use quackd_supervision::{Cause, Demander, Heartbeat, HeartbeatSpec, PI_WORKER, State, Worker};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::oneshot;

/// Messages of many clients of one session, and one frame at a time.
const MAILBOX: usize = 128;

pub(super) const HEARTBEAT: HeartbeatSpec = HeartbeatSpec {
    busy: HEARTBEAT_BUSY,
    idle: HEARTBEAT_IDLE,
    missed: HEARTBEAT_MISSED,
    kill: HEARTBEAT_KILL,
};

/// Clients of one session that wait for Pi's state at the same time; more are shown what is known.
const MAX_STATE_WAITERS: usize = 64;

/// Who waits for the answer to a command.
#[derive(Debug)]
pub(super) enum Waiter {
    /// A client's `say`.
    Say(oneshot::Sender<Result<Said, PiError>>),
    /// An `abort`, which only wants to know that it was heard.
    Abort(oneshot::Sender<()>),
    /// Those in [`PiHandle::state_waiters`].
    State,
}

/// A prompt for a Pi that has not started yet.
#[derive(Debug)]
pub(super) struct Unsent {
    pub(super) number: u64,
    pub(super) message: String,
    pub(super) reply: oneshot::Sender<Result<Said, PiError>>,
}

/// See the module's documentation.
pub(crate) struct PiHandle {
    pub(super) session: SessionId,
    pub(super) name: String,
    pub(super) workspace: String,
    /// Where Pi keeps the conversation; empty if it was never told.
    pub(super) session_file: String,
    pub(super) services: Rc<Services>,
    pub(super) registry: WeakAddr<Registry>,
    pub(super) view: Rc<View>,
    pub(super) worker: Worker,
    pub(super) process: Option<PiProcess>,
    pub(super) cgroup: Option<SessionPaths>,
    pub(super) generation: u64,
    pub(super) commands: Commands<Waiter>,
    pub(super) unsent: VecDeque<Unsent>,
    /// Those who want to see Pi's state when it is there.
    pub(super) state_waiters: Vec<oneshot::Sender<()>>,
    /// `agent_start` came, and no `agent_end` yet.
    pub(super) in_turn: bool,
    /// A prompt was accepted, and nothing has ended since.
    pub(super) has_accepted: bool,
    /// When Pi last said anything.
    pub(super) heard: Instant,
    /// How Pi ended, told before its process was reaped.
    pub(super) end: Option<PiEnd>,
    /// How the process ended, while what it said before is still being taken.
    pub(super) exited: Option<Option<ProcessExit>>,
    /// Why it was ended, if that was our doing.
    pub(super) condemned: Option<&'static str>,
    pub(super) heartbeat: Heartbeat,
    pub(super) pinged: Option<u64>,
    pub(super) heartbeat_timer: Option<SpawnHandle>,
    pub(super) life_timer: Option<SpawnHandle>,
    pub(super) dialog_timer: Option<SpawnHandle>,
    pub(super) warnings: u32,
    pub(super) ending: Option<Ending>,
    pub(super) drained: Vec<oneshot::Sender<()>>,
}

impl PiHandle {
    /// A session without a Pi.
    pub(super) fn new(
        found: &FoundSession,
        services: Rc<Services>,
        registry: WeakAddr<Registry>,
        view: Rc<View>,
    ) -> Self {
        let now = Instant::now();
        Self {
            session: found.session_id.clone(),
            name: found.session_name.clone(),
            workspace: found.workspace_path.clone(),
            session_file: found.pi_session_file.clone(),
            services,
            registry,
            view,
            worker: Worker::new(PI_WORKER),
            process: None,
            cgroup: None,
            generation: 0,
            commands: Commands::default(),
            unsent: VecDeque::new(),
            state_waiters: Vec::new(),
            in_turn: false,
            has_accepted: false,
            heard: now,
            end: None,
            exited: None,
            condemned: None,
            heartbeat: Heartbeat::new(HEARTBEAT, now),
            pinged: None,
            heartbeat_timer: None,
            life_timer: None,
            dialog_timer: None,
            warnings: 0,
            ending: None,
            drained: Vec::new(),
        }
    }

    /// Keeps up with what the registry knows of the session.
    fn update(&mut self, found: &FoundSession) {
        self.name.clone_from(&found.session_name);
        if !found.pi_session_file.is_empty() {
            self.session_file.clone_from(&found.pi_session_file);
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.worker.state(), State::Ready { .. })
    }

    /// Writes down for others what they may see.
    pub(super) fn show(&self) {
        let view = &self.view;
        let is_none = matches!(
            self.worker.state(),
            State::Absent | State::Backoff { .. } | State::Failed { .. }
        );
        let is_running = !is_none && self.end.is_none();
        view.is_running.set(is_running);
        view.is_alive.set(is_running && self.process.is_some());
        let waits = self.commands.count("prompt") != 0 || !self.unsent.is_empty();
        view.is_busy.set(self.in_turn || waits || view.dialogs.borrow().any());
        if !is_running {
            view.state.replace(None);
        }
        let mut info = view.info.borrow_mut();
        if info.is_none() && self.process.is_none() {
            return;
        }
        let info = info.get_or_insert_default();
        self.worker.state().name().clone_into(&mut info.state);
        let process = self.process.as_ref();
        info.pid = process.and_then(|process| process.pids).map(|(_, pi)| pi);
        info.worker_pid = process.and_then(|process| process.pids).map(|(worker, _)| worker);
        info.monitor_pid = process.and_then(PiProcess::monitor_pid);
        info.started_at = process.map(|process| process.started_at.clone());
        info.restarts = self.worker.crashes();
        info.last_death = self.worker.last_crash().map(Cause::to_string);
    }

    /// It did something, or was asked to.
    pub(super) fn touch(&mut self) {
        self.heard = Instant::now();
        self.view.active.set(self.heard);
    }

    /// Sends a command to a Pi that is there.
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
        let sent = self.process.as_ref().map(|process| process.offer(&frame));
        match sent {
            Some(Ok(())) => {}
            Some(Err(Refused::TooLong)) => return fail(waiter, &PiError::TooLong),
            Some(Err(Refused::NotTaken)) | None => return fail(waiter, &PiError::Stdin),
        }
        let now = Instant::now();
        self.view.active.set(now);
        self.commands.insert(number, name, now, waiter);
        ctx.run_later(PI_COMMAND_LIMIT, move |handle, ctx| handle.timed_out(number, ctx));
        self.show();
    }

    /// A command was not answered in time.
    fn timed_out(&mut self, number: u64, ctx: &mut Context<Self>) {
        let Some(sent) = self.commands.give_up(number) else { return };
        // Upstream's clients give up at the same time. One that has said nothing at all since is of no use to
        // the next one either; one that works, or waits for a person, may well be slow to answer.
        let is_mute = self.heard <= sent.at;
        fail(sent.waiter, &PiError::TimedOut { command: sent.name });
        self.show();
        if is_mute && sent.name == "prompt" {
            self.condemn(Cause::NotResponding, "it did not answer", ctx);
        }
    }

    /// Has Pi tell its state, unless it has been asked.
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
        let is_coming = self.is_ready() || matches!(self.worker.state(), State::Starting { .. });
        // Who is not kept is answered by the drop of its sender: what is known is all there is.
        if let Some(waiter) = waiter
            && is_coming
            && !is_mute
            && self.state_waiters.len() < MAX_STATE_WAITERS
        {
            self.state_waiters.push(waiter);
        }
        if self.is_ready() && self.commands.count("get_state") == 0 {
            self.command(PiCommand::GetState, Waiter::State, ctx);
        }
    }

    /// Sends what waited for Pi to start.
    pub(super) fn flush(&mut self, ctx: &mut Context<Self>) {
        while let Some(Unsent { number, message, reply }) = self.unsent.pop_front() {
            self.command_as(number, PiCommand::Prompt { message }, Waiter::Say(reply), ctx);
        }
        self.show();
    }

    /// Answers those that wait for Pi to start.
    pub(super) fn refuse_unsent(&mut self, error: &PiError) {
        for unsent in self.unsent.drain(..) {
            // Who does not wait any more has been answered.
            unsent.reply.send(Err(error.clone())).ok();
        }
        self.show();
    }

    /// Closes all questions: what they were for is over. Pi is told if it is there to be told.
    pub(super) fn end_dialogs(&mut self) {
        let ended = self.view.dialogs.borrow_mut().end();
        for id in ended {
            self.cancel(&id);
            self.tell_closed(&id, super::dialogs::Closed::Ended);
        }
        self.show();
    }

    /// Tells Pi that nobody answers.
    pub(super) fn cancel(&self, id: &str) {
        let answer =
            UiAnswer { id: id.to_owned(), cancelled: Some(true.into()), ..UiAnswer::default() };
        self.send_answer(answer);
    }

    pub(super) fn send_answer(&self, answer: UiAnswer) {
        if let Some(process) = self.process.as_ref().filter(|_| self.end.is_none())
            && process.offer(&ToPiWorker::UiAnswer(answer)).is_err()
        {
            tracing::warn!(session = %self.session, "an answer was not taken by a Pi worker");
        }
    }
}

/// Answers whoever waited for a command that came to nothing.
pub(super) fn fail(waiter: Waiter, error: &PiError) {
    match waiter {
        Waiter::Say(reply) => drop(reply.send(Err(error.clone()))),
        // They see by the drop that nothing came.
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

/// Give Pi a person's words, and start it if need be. Answered when Pi has accepted or refused them.
#[derive(Debug, Message)]
#[rtype(result = "Result<Said, PiError>")]
pub(crate) struct Say {
    pub(crate) message: String,
    pub(crate) found: FoundSession,
}

/// Pi's answer to a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    /// Whether it was accepted.
    pub(crate) success: bool,
    /// Why not.
    pub(crate) error: Option<String>,
}

impl Handler<Say> for PiHandle {
    type Result = ResponseFuture<Result<Said, PiError>>;

    fn handle(&mut self, Say { message, found }: Say, ctx: &mut Self::Context) -> Self::Result {
        self.update(&found);
        match self.ending {
            Some(Ending::Shutdown) => return Box::pin(async { Err(PiError::ShuttingDown) }),
            Some(Ending::Deleted) => return Box::pin(async { Err(PiError::Deleted) }),
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
            self.unsent.push_back(Unsent { number, message, reply });
            ctx.run_later(PI_COMMAND_LIMIT, move |handle, _| handle.give_up_unsent(number));
            let demand = self.worker.on_demand(Instant::now(), Demander::Call);
            self.follow(demand, ctx);
        }
        self.show();
        // A handle that ends has answered nobody: the daemon stops.
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

/// A client attached: have a Pi ready soon, and try again after a failure.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Wake {
    pub(crate) found: FoundSession,
}

impl Handler<Wake> for PiHandle {
    type Result = ();

    fn handle(&mut self, Wake { found }: Wake, ctx: &mut Self::Context) {
        self.update(&found);
        if self.ending.is_none() {
            let demand = self.worker.on_demand(Instant::now(), Demander::Attach);
            self.follow(demand, ctx);
            self.show();
        }
    }
}

/// Make room for another session's Pi.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Retire;

impl Handler<Retire> for PiHandle {
    type Result = ();

    fn handle(&mut self, _: Retire, ctx: &mut Self::Context) {
        // It may have got something to do since.
        self.show();
        if !self.view.is_busy.get() {
            tracing::info!(session = %self.session, "ending an idle Pi to make room");
            let order = self.worker.drain(Instant::now());
            self.obey(order, ctx);
        }
    }
}

/// Take nothing more, let a turn finish until `until`, end Pi. Answered when the process is gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct Drain {
    pub(super) until: Instant,
    pub(super) ending: Ending,
}

impl Handler<Drain> for PiHandle {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Drain { until, ending }: Drain, ctx: &mut Self::Context) -> Self::Result {
        self.ending = Some(ending);
        self.refuse_unsent(match ending {
            Ending::Shutdown => &PiError::ShuttingDown,
            Ending::Deleted => &PiError::Deleted,
        });
        if self.process.is_none() {
            return Box::pin(async {});
        }
        let (done, drained) = oneshot::channel();
        self.drained.push(done);
        ctx.run_later(until.saturating_duration_since(Instant::now()), |handle, _| {
            if let Some(process) = &mut handle.process {
                process.kill();
            }
        });
        let order = self.worker.drain(Instant::now());
        self.obey(order, ctx);
        Box::pin(async {
            // An actor that ended has no process.
            drained.await.ok();
        })
    }
}
