//! The life of a session's Pi: found and started when somebody wants it, watched until it has ended, started
//! again only if somebody waits.

use super::environment;
use super::error::PiError;
use super::find::{arguments, find_blocking};
use super::handle::{PiHandle, fail};
use super::process::PiProcess;
use crate::registry::Crashed;
use crate::services::Services;
use crate::spawner::SpawnFailure;
use actix::prelude::*;
use quackd_process::{Exit as ProcessExit, Limits, SessionPaths, SpawnedWorker};
use quackd_protocol::SessionId;
use quackd_protocol::client::ProcessDeath;
use quackd_protocol::pi::{PI_FRAME_PROTOCOL, PiEnd, PiStart, ToPiWorker};
use quackd_supervision::{AfterExit, Cause, Demand, Demander, Exit, Load, Order, State};
use serde_json::json;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a Pi's start waits for the user's login shell, which may be the only one that knows the keys.
const LOGIN_LIMIT: Duration = Duration::from_secs(3);

/// Longest part of a session's id in the name of its control group.
const MAX_CGROUP_NAME: usize = 44;

/// How long the end of a control group may take; it is looked at on the blocking pool.
const CGROUP_LIMIT: Duration = Duration::from_secs(1);

/// How long what a process said that is gone may take to be taken.
const LAST_FRAMES: Duration = Duration::from_secs(2);

/// A disk may hang.
const PREPARE_LIMIT: Duration = Duration::from_secs(5);

/// What a Pi is started with.
struct Prepared {
    start: PiStart,
    cgroup: Option<SessionPaths>,
}

impl PiHandle {
    /// Does what a demand asks for besides using Pi.
    pub(super) fn follow(&mut self, demand: Demand, ctx: &mut Context<Self>) {
        match demand {
            Demand::Start => self.start_worker(ctx),
            Demand::WaitUntil(at) => self.ask_again_at(at, ctx),
            Demand::Use => self.flush(ctx),
            Demand::WaitForReady => {}
            Demand::Refuse(cause) => self.refuse_unsent(&PiError::Failed(cause)),
        }
    }

    fn ask_again_at(&mut self, at: Instant, ctx: &mut Context<Self>) {
        let wait = at.saturating_duration_since(Instant::now());
        let timer = ctx.run_later(wait, |handle, ctx| {
            if !handle.unsent.is_empty() && handle.ending.is_none() {
                let demand = handle.worker.on_demand(Instant::now(), Demander::Call);
                handle.follow(demand, ctx);
            }
        });
        self.set_life_timer(Some(timer), ctx);
    }

    fn set_life_timer(&mut self, timer: Option<SpawnHandle>, ctx: &mut Context<Self>) {
        if let Some(old) = std::mem::replace(&mut self.life_timer, timer) {
            ctx.cancel_future(old);
        }
    }

    /// Lets the state machine know when its next deadline has come.
    pub(super) fn arm_life(&mut self, ctx: &mut Context<Self>) {
        let timer = self.worker.next_wakeup().map(|due| {
            ctx.run_later(due.saturating_duration_since(Instant::now()), |handle, ctx| {
                handle.life_timer = None;
                let order = handle.worker.on_timer(Instant::now());
                handle.obey(order, ctx);
            })
        });
        self.set_life_timer(timer, ctx);
    }

    pub(super) fn obey(&mut self, order: Order, ctx: &mut Context<Self>) {
        if let Some(process) = &mut self.process {
            match order {
                Order::Nothing => {}
                Order::Shutdown if process.offer(&ToPiWorker::Shutdown {}).is_ok() => {}
                Order::Shutdown | Order::Kill => process.kill(),
            }
        }
        self.show();
        self.arm_life(ctx);
    }

    /// Ends a Pi that is of no use any more; `why` is for its followers.
    pub(super) fn condemn(&mut self, cause: Cause, why: &'static str, ctx: &mut Context<Self>) {
        tracing::warn!(session = %self.session, %cause, why, "ending a Pi");
        self.condemned.get_or_insert(why);
        let order = self.worker.condemn(Instant::now(), cause);
        self.obey(order, ctx);
    }

    fn start_worker(&mut self, ctx: &mut Context<Self>) {
        self.generation += 1;
        self.end = None;
        self.condemned = None;
        self.warnings = 0;
        let max = self.services.config.pi.max_live.value;
        if !self.services.pis.make_room(max) {
            return self.not_started(&PiError::TooManyPis { max }, ctx);
        }
        // Taken from here on, so that two that start at once do not take the same room.
        self.view.is_running.set(true);
        let services = Rc::clone(&self.services);
        let (session, workspace) = (self.session.clone(), self.workspace.clone());
        let preparing = prepare(services, session, workspace, self.session_file.clone());
        ctx.spawn(preparing.into_actor(self).map(|prepared, handle, ctx| {
            match (prepared, handle.ending) {
                (Ok(prepared), None) => handle.spawn_process(prepared, ctx),
                (Ok(prepared), Some(_)) => {
                    handle.cgroup = prepared.cgroup;
                    handle.spawn_failed(SpawnFailure::Unavailable, ctx);
                }
                (Err(error), _) => handle.not_started(&error, ctx),
            }
        }));
        self.arm_life(ctx);
    }

    /// There is nothing to start. Who waits is told; who comes next has it looked for again.
    fn not_started(&mut self, error: &PiError, ctx: &mut Context<Self>) {
        let session = &self.session;
        match error {
            PiError::NotFound { .. } => tracing::debug!(%session, "no Pi is installed"),
            error => tracing::warn!(%session, %error, "no Pi is started"),
        }
        self.refuse_unsent(error);
        self.state_waiters.clear();
        let after = self.worker.on_not_started(Instant::now());
        self.after_exit(after, ctx);
    }

    fn spawn_process(&mut self, prepared: Prepared, ctx: &mut Context<Self>) {
        let Prepared { mut start, cgroup } = prepared;
        // Paths and numbers: there is always a JSON form of them.
        start.cgroup = cgroup.as_ref().and_then(|paths| serde_json::to_value(paths).ok());
        self.cgroup = cgroup;
        let start = ToPiWorker::Start(Box::new(start));
        match PiProcess::prepare(self.generation, &start, ctx.address()) {
            Err(error) => self.spawn_failed(SpawnFailure::Channel(error), ctx),
            Ok((process, far_end)) => {
                self.process = Some(process);
                let spawner = self.services.spawner.clone();
                let spawning = async move { spawner.spawn_pi(far_end).await };
                ctx.spawn(spawning.into_actor(self).map(|result, handle, ctx| match result {
                    Ok(worker) => handle.spawned(worker, ctx),
                    Err(failure) => handle.spawn_failed(failure, ctx),
                }));
                self.show();
            }
        }
    }

    fn spawned(&mut self, worker: SpawnedWorker, ctx: &mut Context<Self>) {
        let order = self.worker.on_spawned(Instant::now());
        let spawner = self.services.spawner.clone();
        let watched = worker.process.clone();
        let ended = async move { spawner.ended(watched).await };
        ctx.spawn(ended.into_actor(self).map(|exit, handle, ctx| handle.was_reaped(exit, ctx)));
        if let Some(process) = &mut self.process {
            process.spawned(worker);
        }
        // One that was given up while it was being started is ended now.
        self.obey(order, ctx);
    }

    fn spawn_failed(&mut self, failure: SpawnFailure, ctx: &mut Context<Self>) {
        tracing::error!(session = %self.session, error = %failure, "cannot start a Pi worker");
        self.process = None;
        self.end_cgroup(ctx);
        let waiting = !self.unsent.is_empty();
        let after = self.worker.on_spawn_failed(Instant::now(), failure.cause(), waiting, random());
        self.after_exit(after, ctx);
    }

    /// Pi has ended, and its worker says how; the process itself is reaped a moment later.
    pub(super) fn pi_ended(&mut self, end: PiEnd, ctx: &mut Context<Self>) {
        let exit = exit_of(&end);
        let is_quiet = exit == Exit::Code(0) && !self.in_turn && !self.commands.any();
        self.end = Some(end);
        self.report_end(exit);
        // Whoever comes now waits for the next one.
        let now = Instant::now();
        let order = match is_quiet {
            true => self.worker.drain(now),
            false => self.worker.condemn(now, Cause::from(exit)),
        };
        // The worker is on its way out; what Pi left behind is not waited for.
        self.obey(if order == Order::Nothing { order } else { Order::Kill }, ctx);
        self.finish(ctx);
    }

    /// Tells everybody that Pi is gone: who waits, who follows, and the turn. Once for each Pi.
    fn report_end(&mut self, exit: Exit) {
        let end = self.end.clone().unwrap_or_default();
        let is_asked = match self.worker.state() {
            State::Draining { cause, .. } => cause.is_none() || self.ending.is_some(),
            _ => false,
        };
        let was_in_turn = self.in_turn || self.has_accepted;
        let error = match self.condemned {
            Some("it closed its stdin") => PiError::Stdin,
            Some(_) => PiError::Ended(Cause::NotResponding),
            None => PiError::Exited { code: end.code },
        };
        for sent in self.commands.take() {
            fail(sent.waiter, &error);
        }
        let session = &self.session;
        if !is_asked {
            let text = match self.condemned {
                Some(why) => format!("Pi process for session \"{}\" was ended: {why}", self.name),
                None => format!(
                    "Pi process for session \"{}\" died unexpectedly (exit code: {})",
                    self.name,
                    end.code.map_or_else(|| "null".to_owned(), |code| code.to_string())
                ),
            };
            tracing::warn!(%session, ?exit, stderr = end.stderr_tail, "a Pi died");
            const NAME: &str = "extension_error";
            self.services.events.publish(session, NAME, || ProcessDeath {
                kind: NAME,
                extension_path: "daemon",
                event: "process_death",
                error: &text,
                signal: end.signal,
                exit_code: end.code,
                stderr_tail: &end.stderr_tail,
            });
            if let Some(registry) = self.registry.upgrade() {
                // A full mailbox loses a count, and nothing else.
                registry.try_send(Crashed { session: session.clone() }).ok();
            }
        } else {
            tracing::info!(%session, "a Pi ended");
        }
        if was_in_turn {
            let text = error.to_string();
            self.prompt_failed(&text);
            if self.in_turn {
                const NAME: &str = "agent_end";
                self.services.events.publish(
                    session,
                    NAME,
                    || json!({ "type": NAME, "messages": [] }),
                );
            }
        }
        self.in_turn = false;
        self.has_accepted = false;
        self.state_waiters.clear();
        self.end_dialogs();
    }

    /// Tells followers that a prompt came to nothing after it had been accepted.
    pub(super) fn prompt_failed(&self, error: &str) {
        const NAME: &str = "prompt_error";
        let error = if error.is_empty() { "Prompt failed" } else { error };
        let session = &self.session;
        self.services.events.publish(session, NAME, || json!({ "type": NAME, "error": error }));
    }

    /// The process was reaped. What it said before may still be on its way, and tells more.
    fn was_reaped(&mut self, exit: Option<ProcessExit>, ctx: &mut Context<Self>) {
        if !self.process.as_ref().is_some_and(PiProcess::may_speak) {
            return self.ended(exit, ctx);
        }
        self.exited = Some(exit);
        let generation = self.generation;
        ctx.run_later(LAST_FRAMES, move |handle, ctx| {
            if handle.generation == generation {
                handle.finish(ctx);
            }
        });
    }

    /// All that it said was taken: if it was reaped, that is the end.
    pub(super) fn finish(&mut self, ctx: &mut Context<Self>) {
        if let Some(exit) = self.exited.take() {
            self.ended(exit, ctx);
        }
    }

    /// The process is gone with everything below it, and nothing of it will come any more.
    fn ended(&mut self, exit: Option<ProcessExit>, ctx: &mut Context<Self>) {
        let exit = match (&self.end, exit) {
            (Some(end), _) => exit_of(end),
            (None, Some(ProcessExit::Code(code))) => Exit::Code(code),
            (None, Some(ProcessExit::Signal(signal))) => Exit::Signal(signal),
            // The status was lost with the main thread: the daemon is ending.
            (None, None) => Exit::Signal(9),
        };
        if self.end.is_none() {
            let (code, signal) = match exit {
                Exit::Code(code) => (Some(code), None),
                Exit::Signal(signal) => (None, Some(signal)),
                Exit::OutOfMemory => (None, Some(nix::libc::SIGKILL)),
            };
            // A worker that was killed, and Pi with it.
            let refused = matches!(
                self.worker.state(),
                State::Draining { cause: Some(Cause::Refused(_)), .. }
            );
            if !refused {
                self.end = Some(PiEnd { code, signal, stderr_tail: String::new() });
                self.report_end(exit);
            }
        }
        let load = Load { in_flight: false, waiting: !self.unsent.is_empty() };
        let after = self.worker.on_exit(Instant::now(), exit, load, random());
        self.end_cgroup(ctx);
        if let Some(process) = self.process.take() {
            let session = self.session.clone();
            ctx.spawn(actix::fut::wrap_future(async move {
                let words = process.last_words().await;
                if !words.is_empty() {
                    tracing::warn!(%session, words, "a Pi worker's last words");
                }
            }));
        }
        if let Some(timer) = self.heartbeat_timer.take() {
            ctx.cancel_future(timer);
        }
        self.after_exit(after, ctx);
    }

    fn after_exit(&mut self, after: AfterExit, ctx: &mut Context<Self>) {
        self.set_life_timer(None, ctx);
        for drained in self.drained.drain(..) {
            // The daemon may have stopped waiting.
            drained.send(()).ok();
        }
        match after {
            AfterExit::Stay => {}
            AfterExit::RestartAt(at) if self.ending.is_none() => self.ask_again_at(at, ctx),
            AfterExit::RestartAt(_) => {}
            AfterExit::GaveUp => {
                let State::Failed { cause, .. } = self.worker.state().clone() else { return };
                tracing::error!(session = %self.session, %cause, "Pi has failed");
                self.refuse_unsent(&PiError::Failed(cause));
            }
        }
        self.show();
    }

    /// Ends what is left in the control group of the last Pi, and removes it. Usually its monitor has.
    fn end_cgroup(&mut self, ctx: &mut Context<Self>) {
        let Some(cgroup) = self.cgroup.take() else { return };
        let (session, metrics) = (self.session.clone(), Arc::clone(&self.services.metrics));
        let end = move || cgroup.end_blocking(CGROUP_LIMIT);
        ctx.spawn(actix::fut::wrap_future(async move {
            match actix_rt::task::spawn_blocking(end).await {
                Ok(Ok(end)) => {
                    metrics.strays_killed.add(end.killed.into());
                    metrics.survivors.add(end.survivors.into());
                }
                Ok(Err(error)) => tracing::warn!(%session, %error, "cannot end a control group"),
                // The daemon ends, and its control groups with it.
                Err(_) => {}
            }
        }));
    }
}

fn exit_of(end: &PiEnd) -> Exit {
    match (end.code, end.signal) {
        (Some(code), _) => Exit::Code(code),
        (None, signal) => Exit::Signal(signal.unwrap_or(nix::libc::SIGKILL)),
    }
}

/// Finds Pi and makes what it must find.
async fn prepare(
    services: Rc<Services>,
    session: SessionId,
    workspace: String,
    session_file: String,
) -> Result<Prepared, PiError> {
    let commands = services.login.environment_for_worker(LOGIN_LIMIT).await;
    // Whoever started the daemon with a key does not wait for a shell that may have one.
    let has_key = std::env::vars_os()
        .any(|(name, value)| name.to_str().is_some_and(environment::is_key) && !value.is_empty());
    let limit = if has_key { Duration::ZERO } else { LOGIN_LIMIT };
    let login = services.login.environment_for_pi(limit).await;
    let env = environment::merge(std::env::vars_os(), &commands, &login);
    let home = services.home.clone();
    let config = services.config_file.path.clone();
    let settings = services.config.pi.clone();
    let cgroups = services.cgroups.clone();
    let processes = u32::try_from(services.config.limits.processes.value).unwrap_or(u32::MAX);
    // A workspace on a dead mount holds its thread for ever.
    let place = tokio::time::timeout(PREPARE_LIMIT, Arc::clone(&services.lookups).acquire_owned());
    let Ok(Ok(place)) = place.await else { return Err(PiError::ShuttingDown) };
    let make = move || {
        let _place = place;
        let path = crate::environment::of(&env, "PATH");
        let program = find_blocking(&settings.binary, path, &config)?;
        if PathBuf::from(&workspace).read_dir().is_err() {
            return Err(PiError::NoWorkspace(workspace));
        }
        let sessions = home.prepare_pi_sessions_blocking();
        let sessions = sessions.map_err(|error| PiError::NotStarted(error.to_string()))?;
        let args = arguments(&settings, &env, &sessions.display().to_string(), &session_file);
        let name: String = session.as_str().chars().map(plain).take(MAX_CGROUP_NAME).collect();
        let limits = Limits { processes, ..Limits::default() };
        let cgroup = cgroups.and_then(|cgroups| {
            let made = cgroups.session_blocking(&format!("pi-{name}"), &limits);
            made.inspect_err(|error| tracing::warn!(%session, %error, "no control group")).ok()
        });
        let start = PiStart {
            proto: PI_FRAME_PROTOCOL,
            session: session.0,
            workspace,
            program,
            args,
            env,
            cgroup: None,
            processes,
        };
        Ok(Prepared { start, cgroup })
    };
    match tokio::time::timeout(PREPARE_LIMIT, actix_rt::task::spawn_blocking(make)).await {
        Ok(Ok(prepared)) => prepared,
        Ok(Err(_gone)) => Err(PiError::ShuttingDown),
        Err(_elapsed) => Err(PiError::NotStarted("a disk does not answer".to_owned())),
    }
}

/// What may be in the name of a control group.
fn plain(c: char) -> char {
    if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }
}

/// A number that differs from one to the next, for jitter only.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
