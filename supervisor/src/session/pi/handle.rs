//! One session's Pi as an actor: the only owner of its process.
//!
//! Owns: the state machine of the process, its heartbeat, the commands that Pi has not answered and the prompts
//! that wait for it to start.
//! Receives: [`Say`], [`Wake`] (clients) and what stands in [`super::requests`], [`Drain`]
//! ([`super::Pis`]), and what every child's handle receives ([`super::child_impl`]).
//! Blocks on: nothing.
//! Mailbox: [`MAILBOX`] messages; a sender waits for room.
//! Ends: with the daemon, or with its session.
//!
//! Invariants: who waits is answered exactly once, also when Pi dies. A prompt that was written to Pi is never
//! written again.

use super::commands::Commands;
use super::history;
use super::status::View;
use crate::children::{Child, Ending, Eviction, LATE, Life, Refused};
use crate::errors::PiError;
use crate::pool::session_status::{Doing, Stopped};
use crate::session::FoundSession;
use crate::session::owner::Owner;
use crate::session::services::SessionServices;
use actix::prelude::*;
use quackd_process::Exit as ProcessExit;
use quackd_protocol::SessionId;
use quackd_protocol::limits::{MAX_PI_PROMPTS, PI_ABORT_LIMIT, PI_COMMAND_LIMIT, PI_STATE_WAIT};
use quackd_protocol::pi::{PiCommand, PiEnd, ToPiWorker, UiAnswer};
use quackd_supervision::{Cause, Demander, PI_WORKER, State};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Messages of many clients of one session, and one frame at a time.
const MAILBOX: usize = 128;

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
    pub(super) services: Rc<SessionServices>,
    pub(super) owner: Owner,
    pub(super) view: Rc<View>,
    pub(super) child: Child,
    /// Process ids of the worker and of Pi, said by the worker; for people.
    pub(super) pids: Option<(u32, u32)>,
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
    pub(super) dialog_timer: Option<SpawnHandle>,
    /// Why the last process is not there any more.
    pub(super) stopped: Stopped,
    /// The process that there is was ended for this.
    pub(super) evicted: Option<Eviction>,
}

impl PiHandle {
    /// A session without a Pi.
    pub(super) fn new(
        found: &FoundSession,
        services: Rc<SessionServices>,
        owner: Owner,
        view: Rc<View>,
    ) -> Self {
        Self {
            session: found.session_id.clone(),
            name: found.session_name.clone(),
            workspace: found.workspace_path.clone(),
            session_file: found.pi_session_file.clone(),
            services,
            owner,
            view,
            child: Child::new(PI_WORKER, found.session_id.0.clone()),
            pids: None,
            commands: Commands::default(),
            unsent: VecDeque::new(),
            state_waiters: Vec::new(),
            in_turn: false,
            has_accepted: false,
            heard: Instant::now(),
            end: None,
            exited: None,
            condemned: None,
            dialog_timer: None,
            stopped: Stopped::default(),
            evicted: None,
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
        self.child.is_ready()
    }

    /// Writes down for others what they may see.
    pub(super) fn show(&self) {
        let view = &self.view;
        let is_none = matches!(
            self.child.worker.state(),
            State::Absent | State::Backoff { .. } | State::Failed { .. }
        );
        let is_running = !is_none && self.end.is_none();
        view.is_running.set(is_running);
        view.is_leaving.set(matches!(self.child.worker.state(), State::Draining { .. }));
        view.is_alive.set(is_running && self.child.process.is_some());
        let waits = self.commands.count("prompt") != 0 || !self.unsent.is_empty();
        view.is_busy.set(self.in_turn || waits || view.dialogs.borrow().any());
        if !is_running {
            view.state.replace(None);
        }
        self.show_standing();
        let mut info = view.info.borrow_mut();
        if info.is_none() && self.child.process.is_none() {
            return;
        }
        let info = info.get_or_insert_default();
        info.life = self.child.describe(Instant::now());
        self.child.worker.state().name().clone_into(&mut info.state);
        info.pid = self.pids.map(|(_, pi)| pi);
        info.worker_pid = self.pids.map(|(worker, _)| worker);
        info.monitor_pid = self.child.monitor_pid();
        info.started_at = self.child.started_at();
        info.restarts = info.life.crashes;
        info.last_death.clone_from(&info.life.last_cause);
    }

    /// Writes down what the session's Pi does, and why.
    fn show_standing(&self) {
        let view = &self.view;
        let calls = self.commands.count("prompt") + self.unsent.len();
        let until = |since| {
            let limit = self.services.daemon.config.worker.idle.value;
            Some(since + limit).filter(|_| self.child.is_ready() && self.end.is_none())
        };
        let doing = match self.child.worker.state() {
            _ if view.dialogs.borrow().any() => Doing::Waiting,
            State::Failed { cause, .. } => Doing::Failed(cause.to_string()),
            _ if self.in_turn || calls != 0 => {
                Doing::Working { calls, jobs: 0, turn: self.in_turn }
            }
            State::Absent => Doing::Stopped(self.stopped.clone()),
            // Whether there is a Pi to start is not known yet.
            State::Starting { .. } if self.child.process.is_none() => {
                Doing::Stopped(self.stopped.clone())
            }
            State::Backoff { cause, .. } => Doing::Stopped(Stopped::Died(cause.to_string())),
            _ => {
                let since = view.active.get();
                Doing::Idle { since, until: until(since) }
            }
        };
        self.services.pool.statuses.set_pi(&self.session, doing);
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
        match self.child.offer(&frame) {
            Ok(()) => {}
            Err(Refused::TooLong) => return fail(waiter, &PiError::TooLong),
            Err(Refused::NotTaken) => return fail(waiter, &PiError::Stdin),
        }
        let now = Instant::now();
        self.view.active.set(now);
        self.commands.insert(number, name, now, waiter);
        self.give_time(number, PI_COMMAND_LIMIT, ctx);
        self.show();
    }

    /// Gives Pi `limit` to answer a command.
    fn give_time(&self, number: u64, limit: Duration, ctx: &mut Context<Self>) {
        let due = Instant::now() + limit;
        ctx.run_later(limit, move |handle, ctx| match LATE < due.elapsed() {
            // Pi may have been stopped too.
            true => handle.give_time(number, PI_ABORT_LIMIT, ctx),
            false => handle.timed_out(number, ctx),
        });
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
        let is_coming =
            self.is_ready() || matches!(self.child.worker.state(), State::Starting { .. });
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
        let is_there = self.child.process.is_some() && self.end.is_none();
        if is_there && self.child.offer(&ToPiWorker::UiAnswer(answer)).is_err() {
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
    /// Number of the session's last event before that, if it was accepted.
    pub(crate) seq: Option<u64>,
}

impl Handler<Say> for PiHandle {
    type Result = ResponseFuture<Result<Said, PiError>>;

    fn handle(&mut self, Say { message, found }: Say, ctx: &mut Self::Context) -> Self::Result {
        self.update(&found);
        match self.child.ending {
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
            self.demand(Demander::Call, ctx);
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
        if self.child.ending.is_none() {
            self.demand(Demander::Attach, ctx);
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
        self.child.ending = Some(ending);
        self.refuse_unsent(match ending {
            Ending::Shutdown => &PiError::ShuttingDown,
            Ending::Deleted => &PiError::Deleted,
        });
        let gone = self.gone_by(until, ctx);
        if gone.is_some() {
            self.retire(ctx);
        }
        let unused = (ending == Ending::Deleted).then(|| PathBuf::from(&self.session_file));
        Box::pin(async {
            if let Some(gone) = gone {
                // An actor that ended has no process.
                gone.await.ok();
            }
            if let Some(file) = unused {
                let discard = move || history::discard_unused_blocking(&file);
                actix_rt::task::spawn_blocking(discard).await.ok();
            }
        })
    }
}
