//! The lifecycle of a session's agent: finds and starts it on demand, waits for its exit, and restarts it only if a
//! caller waits.

use super::actor::AgentActor;
use super::engine::{self, Chosen, Engine};
use super::native::launch::{self as native, NativeLaunch};
use super::pi::launch::{self as pi, PiLaunch};
use super::prompts::fail;
use super::{ExitReason, history};
use crate::children::spawner::SpawnRequestError;
use crate::children::{
    ChildProcess, Death, Drain, DrainReason, KillReason, LifecycleDriver, ProcessKind,
};
use crate::errors::AgentError;
use crate::pool::sessions::Full;
use actix::prelude::*;
use quackd_protocol::agent::AgentExit;
use quackd_protocol::client::{DeadProcess, ErrorCode, ProcessDeath, PromptError};
use quackd_protocol::limits::PI_STDERR_BYTES;
use quackd_protocol::plain::error_line;
use quackd_supervision::{AGENT, Cause, Exit, Load, Order, State};
use serde_json::json;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Timeout for handling the last frames of a dead process.
const LAST_FRAMES: Duration = Duration::from_secs(2);

/// A prepared start.
enum Launch {
    Pi(Box<PiLaunch>),
    Agent(Box<NativeLaunch>),
}

impl AgentActor {
    pub(super) fn start_agent(&mut self, ctx: &mut Context<Self>) {
        self.pids = None;
        self.end = None;
        self.is_compacting = false;
        self.kill_reason = None;
        self.started = self.start_facts();

        let services = Rc::clone(&self.services);
        let (session, workspace) = (self.session.id.clone(), self.session.workspace.clone());
        let owner = self.owner.clone();
        let file = self.session_file.clone();
        let (is_wanted, chosen) = (!self.unsent.is_empty(), self.chosen.clone());
        let options = self.options.clone();

        let preparing = async move {
            let Chosen { engine, missing, .. } = engine::choose(&services, &chosen).await?;
            if engine == Engine::Native && !is_wanted {
                return Err(AgentError::OnDemand);
            }

            let slot = services.table.acquire(&session, ProcessKind::Agent).await;
            slot.map_err(|Full(max)| AgentError::TooManyAgents { max })?;

            match engine {
                Engine::Native => {
                    let prepared =
                        native::prepare(services, owner, session, workspace, file, chosen).await;
                    prepared.map(|prepared| Launch::Agent(Box::new(prepared)))
                }
                Engine::Pi => {
                    match pi::prepare(services, owner, session, workspace, file, options).await {
                        Ok(prepared) => Ok(Launch::Pi(Box::new(prepared))),
                        Err(AgentError::NotFound { config }) => {
                            Err(missing
                                .map_or(AgentError::NotFound { config }, AgentError::NoModel))
                        }
                        Err(error) => Err(error),
                    }
                }
            }
        };

        ctx.spawn(preparing.into_actor(self).map(|prepared, handle, ctx| {
            let prepared = match prepared {
                Ok(Launch::Pi(prepared)) => prepared,
                Ok(Launch::Agent(_)) if handle.child.ending.is_some() => {
                    return handle.spawn_failed(&SpawnRequestError::Unavailable, ctx);
                }
                Ok(Launch::Agent(prepared)) => return handle.spawn_native(*prepared, ctx),
                // A command arrived since the start began, so the agent is wanted now.
                Err(AgentError::OnDemand) if !handle.unsent.is_empty() => {
                    return handle.start_agent(ctx);
                }
                Err(error) => return handle.on_agent_start_failed(&error, ctx),
            };

            // Set before the agent reports it, so that the successor of an agent that dies early gets the same file.
            handle.session_file.clone_from(&prepared.session_file);

            match &prepared.start.project_settings {
                _ if handle.child.ending.is_some() => {
                    handle.child.cgroup = prepared.cgroup;
                    handle.spawn_failed(&SpawnRequestError::Unavailable, ctx);
                }
                Some(found) if handle.unsent.is_empty() => {
                    let error = AgentError::Unasked(found.clone());
                    handle.child.cgroup = prepared.cgroup;
                    handle.end_cgroup();
                    handle.on_agent_start_failed(&error, ctx);
                }
                _ => handle.spawn_pi(*prepared, ctx),
            }
        }));
    }

    /// Handles a start that is not possible. The waiting callers get an error. The next call tries again.
    fn on_agent_start_failed(&mut self, error: &AgentError, ctx: &mut Context<Self>) {
        let session = &self.session.id;
        match error {
            AgentError::NotStarted { engine, .. } => self.note_agent_failure(*engine, error),
            AgentError::Held { .. } => self.note_agent_failure(Engine::Pi, error),
            _ => {}
        }
        match error {
            AgentError::OnDemand | AgentError::NoModel(_) => {}
            AgentError::NotFound { .. } => tracing::debug!(%session, "no Pi is installed"),
            AgentError::Unasked(path) => {
                tracing::info!(%session, path, "Pi is not started by attach, project settings exist");
            }
            error => tracing::warn!(%session, %error, "agent not started"),
        }
        self.refuse_unsent(error);
        self.state_waiters.clear();
        self.not_started(ctx);
    }

    /// Handles the end of the agent, which its worker reports. The worker process is reaped shortly after.
    pub(super) fn on_agent_exit(&mut self, mut end: AgentExit, ctx: &mut Context<Self>) {
        let excess = end.stderr_tail.len().saturating_sub(PI_STDERR_BYTES);
        end.stderr_tail.drain(..end.stderr_tail.ceil_char_boundary(excess));

        let exit = exit_of(&end);
        let is_quiet = exit == Exit::Code(0) && !self.in_turn() && !self.commands.any();
        self.end = Some(end);
        self.report_agent_exit(exit);
        // New callers wait for the next agent.
        let now = Instant::now();
        let order = if is_quiet {
            self.child.lifecycle.drain(now)
        } else {
            self.child.lifecycle.condemn(now, Cause::from(exit))
        };
        // The worker exits by itself. Kill what the agent left behind without waiting.
        self.apply_order(if order == Order::Nothing { order } else { Order::Kill }, ctx);
        self.finish_agent_exit(ctx);
    }

    /// Reports the end of the agent to the waiting callers and the followers. Runs once for each agent.
    fn report_agent_exit(&mut self, exit: Exit) {
        let end = self.end.clone().unwrap_or_default();
        let is_asked = match self.child.lifecycle.state() {
            State::Draining { cause, .. } => cause.is_none() || self.child.ending.is_some(),
            _ => false,
        };

        let exceeded = match self.child.lifecycle.state() {
            State::Draining { cause: Some(cause @ Cause::MemoryLimit { .. }), .. } => {
                Some(cause.clone())
            }
            _ => None,
        };

        let error = self.exit_error(match (&exceeded, self.kill_reason) {
            (Some(cause), _) => ExitReason::OverMemory(cause.clone()),
            (None, Some(why)) => ExitReason::Killed(why),
            (None, None) => ExitReason::Exited(exit),
        });

        self.work.end();
        for sent in self.commands.take() {
            fail(sent.waiter, &error);
        }

        let session = &self.session.id;
        if !is_asked {
            let exceeded = exceeded.map(|cause| cause.to_string());
            let text = self.death_text(exceeded.as_deref(), &end);
            let agent = self.kind();
            tracing::warn!(%session, ?exit, stderr = end.stderr_tail, "{agent} crashed");

            let last = error_line(&end.stderr_tail);
            let last = last.map_or_else(String::new, |line| format!(": {line}"));
            self.note_agent_failure(self.engine, format_args!("{error}{last}"));

            const NAME: &str = "extension_error";
            self.services.events.publish_in_turn(session, self.turns.running(), NAME, || {
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
            tracing::info!(%session, "{} exited", self.kind());
        }

        self.end_turns(&error.to_string());
        self.state_waiters.clear();
        self.end_dialogs();
    }

    /// Records for `doctor` why an agent failed.
    pub(super) fn note_agent_failure(&self, engine: Engine, why: impl std::fmt::Display) {
        let failure = &self.services.agent_failure;
        failure.note(&self.session.id, &self.session.name(), engine, &why.to_string());
    }

    fn death_text(&self, exceeded: Option<&str>, end: &AgentExit) -> String {
        let session = &self.session.name();
        let name = match self.engine {
            Engine::Native => "Agent",
            Engine::Pi => "Pi",
        };
        match exceeded.or_else(|| self.kill_reason.map(KillReason::text)) {
            Some(why) => format!("{name} process for session \"{session}\" was ended: {why}"),
            None => format!(
                "{name} process for session \"{session}\" died unexpectedly (exit code: {})",
                end.code.map_or_else(|| "null".to_owned(), |code| code.to_string())
            ),
        }
    }

    /// Notifies followers that the running turn and all accepted prompts failed, because the agent has exited.
    fn end_turns(&mut self, error: &str) {
        const NAME: &str = "agent_end";
        let running = self.turns.running();
        for turn in self.turns.clear() {
            self.prompt_failed(Some(turn), error, None);
            if running == Some(turn) {
                let data = || json!({ "type": NAME, "messages": [] });
                self.services.events.publish_in_turn(&self.session.id, running, NAME, data);
            }
        }
    }

    /// Notifies followers that an accepted prompt failed.
    pub(super) fn prompt_failed(&self, turn: Option<u64>, error: &str, code: Option<ErrorCode>) {
        const NAME: &str = "prompt_error";
        let error = if error.is_empty() { "Prompt failed" } else { error };
        let session = &self.session.id;
        let data = || PromptError { kind: NAME, error, code };
        self.services.events.publish_in_turn(session, turn, NAME, data);
    }

    /// Handles the reaping of the process. Its last frames may still be in flight and contain more details.
    pub(super) fn on_agent_reaped(&mut self, exit: Option<Exit>, ctx: &mut Context<Self>) {
        if !self.child.process.as_ref().is_some_and(ChildProcess::is_channel_open) {
            return self.on_agent_gone(exit, ctx);
        }
        self.exited = Some(exit);
        let generation = self.child.generation;
        ctx.run_later(LAST_FRAMES, move |handle, ctx| {
            if handle.child.generation == generation && handle.exited.is_some() {
                tracing::warn!(session = %handle.session.id, "the last frames of an agent did not arrive");
                handle.finish_agent_exit(ctx);
            }
        });
    }

    /// Finishes the exit if the process was reaped. All its frames have been handled.
    pub(super) fn finish_agent_exit(&mut self, ctx: &mut Context<Self>) {
        if let Some(exit) = self.exited.take() {
            self.on_agent_gone(exit, ctx);
        }
    }

    /// Handles the end of the process. Everything below it is gone, and no frame follows.
    fn on_agent_gone(&mut self, exit: Option<Exit>, ctx: &mut Context<Self>) {
        // Without a status, the main thread has ended: the daemon is shutting down.
        let exit = self.end.as_ref().map(exit_of).or(exit).unwrap_or(Exit::Signal(9));

        if self.end.is_none() {
            let (code, signal) = match exit {
                Exit::Code(code) => (Some(code), None),
                Exit::Signal(signal) => (None, Some(signal)),
                Exit::OutOfMemory => (None, Some(nix::libc::SIGKILL)),
            };

            // The worker was killed, and the agent with it.
            let refused = matches!(
                self.child.lifecycle.state(),
                State::Draining { cause: Some(Cause::Refused(_)), .. }
            );
            if !refused {
                self.end = Some(AgentExit { code, signal, stderr_tail: String::new() });
                self.report_agent_exit(exit);
            }
        }

        let load = Load { in_flight: false, waiting: !self.unsent.is_empty() };
        let (after, process, crash) = self.note_exit(exit, load, ctx);
        self.pids = None;
        if let Some(process) = process {
            self.note_agent_death(process, exit, crash, ctx);
        }
        self.after_exit(after, ctx);
    }

    /// Records the exit for display.
    fn note_agent_death(
        &self,
        process: ChildProcess,
        exit: Exit,
        crash: Option<Cause>,
        ctx: &mut Context<Self>,
    ) {
        let session = self.session.id.clone();
        let (name, label) = (self.session.name(), self.session.label.clone());

        let deaths = Rc::clone(&self.services.children.deaths);
        let crash = crash.filter(|_| self.child.ending.is_none());
        let crash = crash.map(|cause| (cause.kind().name(), cause.to_string()));
        let said = self.end.as_ref().map(|end| end.stderr_tail.clone()).unwrap_or_default();
        let (pid, started) = (process.monitor_pid(), process.started);

        ctx.spawn(actix::fut::wrap_future(async move {
            let words = process.stderr_tail().await;
            if !words.is_empty() {
                tracing::warn!(%session, words, "stderr tail of an agent");
            }

            let Some((kind, cause)) = crash else { return };
            deaths.note(&Death {
                spec: &AGENT,
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

impl Handler<Drain> for AgentActor {
    type Result = ResponseFuture<()>;

    /// Refuses the waiting prompts and lets a turn finish.
    fn handle(&mut self, Drain { until, ending }: Drain, ctx: &mut Self::Context) -> Self::Result {
        self.child.ending = Some(ending);
        self.refuse_unsent(match ending {
            DrainReason::Shutdown => &AgentError::ShuttingDown,
            DrainReason::Deleted => &AgentError::Deleted,
        });

        let gone = self.kill_at(until, ctx);
        if gone.is_some() {
            self.drain(ctx);
        }

        // The file is deleted only if this daemon has started an agent with it.
        let is_deleted = ending == DrainReason::Deleted && self.child.generation != 0;
        let unused = is_deleted.then(|| PathBuf::from(&self.session_file));

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

fn exit_of(end: &AgentExit) -> Exit {
    match (end.code, end.signal) {
        (Some(code), _) => Exit::Code(code),
        (None, signal) => Exit::Signal(signal.unwrap_or(nix::libc::SIGKILL)),
    }
}
