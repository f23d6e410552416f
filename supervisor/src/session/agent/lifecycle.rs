//! The lifecycle of a session's Pi: finds and starts it on demand, waits for its exit, and restarts it only if a caller
//! waits.

use super::OfPi;
use super::engine::{self, Chosen, Engine};
use super::native::launch::{self as native, AgentLaunch};
use super::pi::launch::{self as pi, PiLaunch};
use super::prompts::fail;
use crate::children::spawner::SpawnRequestError;
use crate::children::{ChildProcess, Death, KillReason, LifecycleDriver, ProcessKind};
use crate::errors::PiError;
use crate::pool::sessions::Full;
use crate::session::actor::SessionActor;
use actix::prelude::*;
use quackd_process::Exit as ProcessExit;
use quackd_protocol::client::{DeadProcess, ErrorCode, ProcessDeath, PromptError};
use quackd_protocol::pi::PiEnd;
use quackd_protocol::plain::error_line;
use quackd_supervision::{Cause, Exit, Load, Order, PI_WORKER, State};
use serde_json::json;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Timeout for handling the last frames of a dead process.
const LAST_FRAMES: Duration = Duration::from_secs(2);

/// A prepared start.
enum Launch {
    Pi(Box<PiLaunch>),
    Agent(Box<AgentLaunch>),
}

impl SessionActor {
    pub(super) fn start_pi(&mut self, ctx: &mut Context<Self>) {
        self.pi.pids = None;
        self.pi.end = None;
        self.pi.is_compacting = false;
        self.pi.kill_reason = None;
        self.pi.started = self.start_facts();
        let services = Rc::clone(&self.services);
        let (session, workspace) = (self.session.clone(), self.workspace.clone());
        let owner = self.owner.clone();
        let file = self.pi.session_file.clone();
        let (is_wanted, chosen) = (!self.pi.unsent.is_empty(), self.pi.chosen.clone());
        let options = self.pi.options.clone();
        let preparing = async move {
            let Chosen { engine, missing, .. } = engine::choose(&services, &chosen).await?;
            if engine == Engine::Native && !is_wanted {
                return Err(PiError::OnDemand);
            }
            let slot = services.table.acquire(&session, ProcessKind::Pi).await;
            slot.map_err(|Full(max)| PiError::TooManyPis { max })?;
            match engine {
                Engine::Native => {
                    let of = (session, workspace, file);
                    let prepared = native::prepare(services, owner, of, chosen).await;
                    prepared.map(|prepared| Launch::Agent(Box::new(prepared)))
                }
                Engine::Pi => {
                    match pi::prepare(services, owner, (session, workspace, file), options).await {
                        Ok(prepared) => Ok(Launch::Pi(Box::new(prepared))),
                        Err(PiError::NotFound { config }) => {
                            Err(missing.map_or(PiError::NotFound { config }, PiError::NoModel))
                        }
                        Err(error) => Err(error),
                    }
                }
            }
        };
        ctx.spawn(preparing.into_actor(self).map(|prepared, handle, ctx| {
            let prepared = match prepared {
                Ok(Launch::Pi(prepared)) => prepared,
                Ok(Launch::Agent(_)) if handle.pi.child.ending.is_some() => {
                    return handle.spawn_failed(OfPi, &SpawnRequestError::Unavailable, ctx);
                }
                Ok(Launch::Agent(prepared)) => return handle.spawn_agent(*prepared, ctx),
                // A message came since the start began.
                Err(PiError::OnDemand) if !handle.pi.unsent.is_empty() => {
                    return handle.start_pi(ctx);
                }
                Err(error) => return handle.on_pi_start_failed(&error, ctx),
            };
            // Known before Pi reports it: a Pi that dies early gets the same file again.
            handle.pi.session_file.clone_from(&prepared.session_file);
            match &prepared.start.project_settings {
                _ if handle.pi.child.ending.is_some() => {
                    handle.pi.child.cgroup = prepared.cgroup;
                    handle.spawn_failed(OfPi, &SpawnRequestError::Unavailable, ctx);
                }
                Some(found) if handle.pi.unsent.is_empty() => {
                    let error = PiError::Unasked(found.clone());
                    handle.pi.child.cgroup = prepared.cgroup;
                    handle.end_cgroup(OfPi);
                    handle.on_pi_start_failed(&error, ctx);
                }
                _ => handle.spawn_pi(*prepared, ctx),
            }
        }));
    }

    /// Handles a start that is not possible. The waiting callers get an error. The next call tries again.
    fn on_pi_start_failed(&mut self, error: &PiError, ctx: &mut Context<Self>) {
        let session = &self.session;
        let is_native = matches!(error, PiError::AgentNotStarted(_));
        if is_native || matches!(error, PiError::NotStarted(_) | PiError::Held { .. }) {
            self.services.pi_failure.note(session, &self.name, is_native, &error.to_string());
        }
        match error {
            PiError::OnDemand | PiError::NoModel(_) => {}
            PiError::NotFound { .. } => tracing::debug!(%session, "no Pi is installed"),
            PiError::Unasked(path) => {
                tracing::info!(%session, path, "Pi is not started by attach, project settings exist");
            }
            error => tracing::warn!(%session, %error, "Pi not started"),
        }
        self.refuse_unsent(error);
        self.pi.state_waiters.clear();
        self.not_started(OfPi, ctx);
    }

    /// Handles the end of Pi, which its worker reports. The worker process is reaped shortly after.
    pub(super) fn on_pi_exit(&mut self, end: PiEnd, ctx: &mut Context<Self>) {
        let exit = exit_of(&end);
        let is_quiet = exit == Exit::Code(0) && !self.pi.in_turn() && !self.pi.commands.any();
        self.pi.end = Some(end);
        self.report_pi_end(exit);
        // New callers wait for the next Pi.
        let now = Instant::now();
        let order = match is_quiet {
            true => self.pi.child.worker.drain(now),
            false => self.pi.child.worker.condemn(now, Cause::from(exit)),
        };
        // The worker exits by itself. Kill what Pi left behind without waiting.
        self.apply_order(OfPi, if order == Order::Nothing { order } else { Order::Kill }, ctx);
        self.finish_pi_exit(ctx);
    }

    /// Reports the end of Pi to the waiting callers and the followers. Runs once for each Pi.
    fn report_pi_end(&mut self, exit: Exit) {
        let end = self.pi.end.clone().unwrap_or_default();
        let is_asked = match self.pi.child.worker.state() {
            State::Draining { cause, .. } => cause.is_none() || self.pi.child.ending.is_some(),
            _ => false,
        };
        let exceeded = match self.pi.child.worker.state() {
            State::Draining { cause: Some(cause @ Cause::MemoryLimit { .. }), .. } => {
                Some(cause.clone())
            }
            _ => None,
        };
        let error = match (&exceeded, self.pi.kill_reason) {
            (Some(cause), _) if self.pi.is_native => PiError::AgentEnded(cause.to_string()),
            (None, Some(why)) if self.pi.is_native => PiError::AgentEnded(why.text().to_owned()),
            (None, None) if self.pi.is_native => PiError::AgentEnded(Cause::from(exit).to_string()),
            (Some(cause), _) => PiError::Ended(cause.clone()),
            (None, Some(KillReason::ClosedStdin)) => PiError::Stdin,
            (None, Some(_)) => PiError::Ended(Cause::NotResponding),
            (None, None) => PiError::Exited { code: end.code },
        };
        self.pi.work.end();
        for sent in self.pi.commands.take() {
            fail(sent.waiter, &error);
        }
        let session = &self.session;
        if !is_asked {
            let exceeded = exceeded.map(|cause| cause.to_string());
            let text = self.death_text(exceeded.as_deref(), &end);
            let agent = self.pi.kind();
            tracing::warn!(%session, ?exit, stderr = end.stderr_tail, "{agent} crashed");
            let last = error_line(&end.stderr_tail);
            let last = last.map_or_else(String::new, |line| format!(": {line}"));
            let is_native = self.pi.is_native;
            self.services.pi_failure.note(
                session,
                &self.name,
                is_native,
                &format!("{error}{last}"),
            );
            const NAME: &str = "extension_error";
            self.services.events.publish_in_turn(session, self.pi.turns.running(), NAME, || {
                ProcessDeath {
                    kind: NAME,
                    extension_path: "daemon",
                    event: "process_death",
                    error: &text,
                    signal: end.signal,
                    exit_code: end.code,
                    stderr_tail: &end.stderr_tail,
                    process: DeadProcess::Pi,
                }
            });
            self.owner.crashed(session);
        } else {
            tracing::info!(%session, "{} exited", self.pi.kind());
        }
        self.end_turns(&error.to_string());
        self.pi.state_waiters.clear();
        self.end_dialogs();
    }

    fn death_text(&self, exceeded: Option<&str>, end: &PiEnd) -> String {
        let (name, session) = (if self.pi.is_native { "Agent" } else { "Pi" }, &self.name);
        match exceeded.or_else(|| self.pi.kill_reason.map(KillReason::text)) {
            Some(why) => format!("{name} process for session \"{session}\" was ended: {why}"),
            None => format!(
                "{name} process for session \"{session}\" died unexpectedly (exit code: {})",
                end.code.map_or_else(|| "null".to_owned(), |code| code.to_string())
            ),
        }
    }

    /// Notifies followers that the running turn and all accepted prompts failed, because Pi has exited.
    fn end_turns(&mut self, error: &str) {
        const NAME: &str = "agent_end";
        let running = self.pi.turns.running();
        for turn in self.pi.turns.clear() {
            self.prompt_failed(Some(turn), error, None);
            if running == Some(turn) {
                let data = || json!({ "type": NAME, "messages": [] });
                self.services.events.publish_in_turn(&self.session, running, NAME, data);
            }
        }
    }

    /// Notifies followers that an accepted prompt failed.
    pub(super) fn prompt_failed(&self, turn: Option<u64>, error: &str, code: Option<ErrorCode>) {
        const NAME: &str = "prompt_error";
        let error = if error.is_empty() { "Prompt failed" } else { error };
        let session = &self.session;
        let data = || PromptError { kind: NAME, error, code };
        self.services.events.publish_in_turn(session, turn, NAME, data);
    }

    /// Handles the reaping of the process. Its last frames may still be in flight and contain more details.
    pub(super) fn on_pi_reaped(&mut self, exit: Option<ProcessExit>, ctx: &mut Context<Self>) {
        if !self.pi.child.process.as_ref().is_some_and(ChildProcess::is_channel_open) {
            return self.pi_ended(exit, ctx);
        }
        self.pi.exited = Some(exit);
        let generation = self.pi.child.generation;
        ctx.run_later(LAST_FRAMES, move |handle, ctx| {
            if handle.pi.child.generation == generation && handle.pi.exited.is_some() {
                tracing::warn!(session = %handle.session, "the last frames of an agent did not arrive");
                handle.finish_pi_exit(ctx);
            }
        });
    }

    /// Finishes the exit if the process was reaped. All its frames have been handled.
    pub(super) fn finish_pi_exit(&mut self, ctx: &mut Context<Self>) {
        if let Some(exit) = self.pi.exited.take() {
            self.pi_ended(exit, ctx);
        }
    }

    /// Handles the end of the process. Everything below it is gone, and no frame follows.
    fn pi_ended(&mut self, exit: Option<ProcessExit>, ctx: &mut Context<Self>) {
        let exit = match (&self.pi.end, exit) {
            (Some(end), _) => exit_of(end),
            (None, Some(ProcessExit::Code(code))) => Exit::Code(code),
            (None, Some(ProcessExit::Signal(signal))) => Exit::Signal(signal),
            // The status was lost because the main thread has ended: the daemon is shutting down.
            (None, None) => Exit::Signal(9),
        };
        if self.pi.end.is_none() {
            let (code, signal) = match exit {
                Exit::Code(code) => (Some(code), None),
                Exit::Signal(signal) => (None, Some(signal)),
                Exit::OutOfMemory => (None, Some(nix::libc::SIGKILL)),
            };
            // The worker was killed, and Pi with it.
            let refused = matches!(
                self.pi.child.worker.state(),
                State::Draining { cause: Some(Cause::Refused(_)), .. }
            );
            if !refused {
                self.pi.end = Some(PiEnd { code, signal, stderr_tail: String::new() });
                self.report_pi_end(exit);
            }
        }
        let load = Load { in_flight: false, waiting: !self.pi.unsent.is_empty() };
        let (after, process, crash) = self.note_exit(OfPi, exit, load, ctx);
        self.pi.pids = None;
        if let Some(process) = process {
            self.note_pi_death(process, exit, crash, ctx);
        }
        self.after_exit(OfPi, after, ctx);
    }

    /// Records the exit for display.
    fn note_pi_death(
        &self,
        process: ChildProcess,
        exit: Exit,
        crash: Option<Cause>,
        ctx: &mut Context<Self>,
    ) {
        let session = self.session.clone();
        let (name, label) = (self.name.clone(), self.label.clone());
        let deaths = Rc::clone(&self.services.children.deaths);
        let crash = crash.filter(|_| self.pi.child.ending.is_none());
        let crash = crash.map(|cause| (cause.kind().name(), cause.to_string()));
        let said = self.pi.end.as_ref().map(|end| end.stderr_tail.clone()).unwrap_or_default();
        let (pid, started) = (process.monitor_pid(), process.started);
        ctx.spawn(actix::fut::wrap_future(async move {
            let words = process.stderr_tail().await;
            if !words.is_empty() {
                tracing::warn!(%session, words, "stderr tail of a Pi worker");
            }
            let Some((kind, cause)) = crash else { return };
            deaths.note(&Death {
                spec: &PI_WORKER,
                session: Some((&session, &name, &label)),
                pid,
                exit: Some(exit),
                kind,
                cause: &cause,
                last_words: if said.is_empty() { &words } else { &said },
                started: Some(started),
            });
        }));
    }
}

fn exit_of(end: &PiEnd) -> Exit {
    match (end.code, end.signal) {
        (Some(code), _) => Exit::Code(code),
        (None, signal) => Exit::Signal(signal.unwrap_or(nix::libc::SIGKILL)),
    }
}
