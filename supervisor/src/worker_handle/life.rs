//! The worker's life: started when somebody wants it, watched until it has ended, started again if the
//! state machine says so.

use super::WorkerHandle;
use crate::environment::Variables;
use crate::errors::CallError;
use crate::registry::Crashed;
use crate::repositories;
use crate::services::Services;
use crate::spawner::SpawnFailure;
use crate::worker_process::WorkerProcess;
use actix::prelude::*;
use quackd_config::LimitSettings;
use quackd_process::{Exit as ProcessExit, Limits, SessionPaths, SpawnedWorker};
use quackd_protocol::SessionId;
use quackd_protocol::limits::UPDATE_CREDITS;
use quackd_protocol::worker::{CommandLimits, FRAME_PROTOCOL, SandboxStart, Start, ToWorker};
use quackd_supervision::{AfterExit, Cause, Demand, Demander, Exit, Load, Order, State};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a worker waits for the user's login environment: less than a call waits for its worker. One
/// that started without is replaced when the answer is there ([`WorkerHandle::replace_outdated`]).
const LOGIN_LIMIT: Duration = Duration::from_millis(1000);

/// Longest part of a session's id in the name of its control group.
const MAX_CGROUP_NAME: usize = 48;

/// How long the end of a control group may take; it is looked at on the blocking pool.
const CGROUP_LIMIT: Duration = Duration::from_secs(1);

/// Our own disk may hang too.
const RUN_DIR_LIMIT: Duration = Duration::from_secs(5);

/// A client attached: have a worker ready soon, and try again after a failure.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Wake;

impl Handler<Wake> for WorkerHandle {
    type Result = ();

    fn handle(&mut self, _: Wake, ctx: &mut Self::Context) {
        if self.ending.is_none() {
            let demand = self.worker.on_demand(Instant::now(), Demander::Attach);
            self.follow(demand, ctx);
        }
    }
}

impl WorkerHandle {
    /// Does what a demand asks for besides using the worker.
    pub(super) fn follow(&mut self, demand: Demand, ctx: &mut Context<Self>) {
        match demand {
            Demand::Start => self.start_worker(ctx),
            Demand::WaitUntil(at) => self.ask_again_at(at, ctx),
            Demand::Use | Demand::WaitForReady | Demand::Refuse(_) => {}
        }
    }

    pub(super) fn ask_again_at(&mut self, at: Instant, ctx: &mut Context<Self>) {
        let wait = at.saturating_duration_since(Instant::now());
        let timer = ctx.run_later(wait, |handle, ctx| {
            if handle.calls.any_unsent() && handle.ending.is_none() {
                let demand = handle.worker.on_demand(Instant::now(), Demander::Call);
                handle.follow(demand, ctx);
            }
        });
        self.set_life_timer(Some(timer), ctx);
    }

    pub(super) fn set_life_timer(&mut self, timer: Option<SpawnHandle>, ctx: &mut Context<Self>) {
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
                Order::Shutdown if process.offer(&ToWorker::Shutdown {}).is_ok() => {}
                Order::Shutdown | Order::Kill => process.kill(),
            }
        }
        self.arm_life(ctx);
    }

    pub(super) fn condemn(&mut self, cause: Cause, ctx: &mut Context<Self>) {
        tracing::warn!(session = %self.session, %cause, "ending a worker");
        let order = self.worker.condemn(Instant::now(), cause);
        self.obey(order, ctx);
    }

    pub(super) fn start_worker(&mut self, ctx: &mut Context<Self>) {
        self.generation += 1;
        self.warnings = 0;
        self.update_credits = UPDATE_CREDITS;
        self.forget_jobs();
        let generation = self.generation;
        let services = Rc::clone(&self.services);
        // Known already, but for the first workers of a daemon that knows nothing of its user yet.
        let known = async move { services.login.environment_for_worker(LOGIN_LIMIT).await };
        ctx.spawn(known.into_actor(self).map(move |env, handle, ctx| {
            handle.login_version = handle.services.login.version();
            match handle.ending {
                None => handle.start_process(generation, env, ctx),
                Some(_) => handle.spawn_failed(SpawnFailure::Unavailable, ctx),
            }
        }));
        self.arm_life(ctx);
    }

    fn start_process(&mut self, generation: u64, env: Variables, ctx: &mut Context<Self>) {
        let workspace = PathBuf::from(&self.workspace);
        let making = make_place(Rc::clone(&self.services), self.session.clone(), workspace);
        ctx.spawn(making.into_actor(self).map(move |made, handle, ctx| {
            match (made, handle.ending) {
                (Ok(cgroup), None) => handle.spawn_process(generation, env, cgroup, ctx),
                (Ok(cgroup), Some(_)) => {
                    handle.cgroup = cgroup;
                    handle.spawn_failed(SpawnFailure::Unavailable, ctx);
                }
                (Err(SpawnFailure::Workspace(error)), _) => handle.no_workspace(&error, ctx),
                (Err(failure), _) => handle.spawn_failed(failure, ctx),
            }
        }));
    }

    fn spawn_process(
        &mut self,
        generation: u64,
        env: Variables,
        cgroup: Option<SessionPaths>,
        ctx: &mut Context<Self>,
    ) {
        let services = Rc::clone(&self.services);
        let run_dir = services.home.session_run_dir(self.session.as_str());
        // Paths and numbers: there is always a JSON form of them.
        let cgroup_for_worker = cgroup.as_ref().and_then(|paths| serde_json::to_value(paths).ok());
        self.cgroup = cgroup;
        self.given_policy = Some(self.policy.clone());
        self.is_stale = false;
        let start = ToWorker::Start(Box::new(Start {
            proto: FRAME_PROTOCOL,
            session_id: self.session.clone(),
            workspace: self.workspace.clone(),
            run_dir: run_dir.map(|dir| dir.display().to_string()).unwrap_or_default(),
            env,
            safe_mode: false,
            respect_ignore_files: services.config.tools.respect_ignore_files.value,
            limits: command_limits(&services.config.limits),
            sandbox: SandboxStart {
                policy: self.policy.clone(),
                probe: services.probe.borrow().clone(),
                tier: asked_tier(&services.config.sandbox.tier.value),
                home: services.user_home.display().to_string(),
                state_dir: services.home.dir().display().to_string(),
                cgroup: cgroup_for_worker,
            },
        }));
        match WorkerProcess::prepare(generation, start, ctx.address()) {
            Err(error) => self.spawn_failed(SpawnFailure::Channel(error), ctx),
            Ok((process, far_end)) => {
                self.process = Some(process);
                let spawning = async move { services.spawner.spawn(far_end).await };
                ctx.spawn(spawning.into_actor(self).map(|result, handle, ctx| match result {
                    Ok(worker) => handle.spawned(worker, ctx),
                    Err(failure) => handle.spawn_failed(failure, ctx),
                }));
            }
        }
    }

    /// There is no directory to work in. Who waits is told so; who comes next has it looked for again.
    fn no_workspace(&mut self, error: &std::io::Error, ctx: &mut Context<Self>) {
        tracing::warn!(session = %self.session, workspace = self.workspace, %error, "no worker is started: the workspace cannot be entered");
        for number in self.calls.unsent() {
            let workspace = self.workspace.clone();
            self.answer(number, ctx, |_| Err(CallError::NoWorkspace(workspace)));
        }
        let after = self.worker.on_not_started(Instant::now());
        self.after_exit(after, ctx);
    }

    /// Ends what is left in the control group of the last worker, and removes it. Usually its monitor has.
    fn end_cgroup(&mut self, ctx: &mut Context<Self>) {
        let Some(cgroup) = self.cgroup.take() else { return };
        let (session, metrics) = (self.session.clone(), Arc::clone(&self.services.metrics));
        let end = move || cgroup.end_blocking(CGROUP_LIMIT);
        ctx.spawn(actix::fut::wrap_future(async move {
            match actix_rt::task::spawn_blocking(end).await {
                Ok(Ok(end)) => {
                    metrics.strays_killed.add(end.killed.into());
                    metrics.survivors.add(end.survivors.into());
                    if end.killed != 0 || !end.removed {
                        tracing::warn!(%session, ?end, "ended what was left in a control group");
                    }
                }
                Ok(Err(error)) => tracing::warn!(%session, %error, "cannot end a control group"),
                // The daemon ends, and its control groups with it.
                Err(_) => {}
            }
        }));
    }

    pub(super) fn spawned(&mut self, worker: SpawnedWorker, ctx: &mut Context<Self>) {
        let order = self.worker.on_spawned(Instant::now());
        let spawner = self.services.spawner.clone();
        let watched = worker.process.clone();
        let ended = async move { spawner.ended(watched).await };
        ctx.spawn(ended.into_actor(self).map(|exit, handle, ctx| handle.ended(exit, ctx)));
        if let Some(process) = &mut self.process {
            process.spawned(worker);
        }
        // A worker that was given up while it was being started is ended now.
        self.obey(order, ctx);
    }

    pub(super) fn spawn_failed(&mut self, failure: SpawnFailure, ctx: &mut Context<Self>) {
        tracing::error!(session = %self.session, error = %failure, "cannot start a worker");
        self.process = None;
        self.end_cgroup(ctx);
        let cause = failure.cause();
        let waiting = self.calls.any_unsent();
        let after = self.worker.on_spawn_failed(Instant::now(), cause, waiting, random());
        self.after_exit(after, ctx);
    }

    fn forget_jobs(&mut self) {
        self.jobs.clear();
        self.services.places.set_jobs(&self.session, 0);
    }

    pub(super) fn load(&self) -> Load {
        Load { in_flight: self.calls.any_sent(), waiting: self.calls.any_unsent() }
    }

    /// The process was reaped, and everything below it is gone.
    pub(super) fn ended(&mut self, exit: Option<ProcessExit>, ctx: &mut Context<Self>) {
        let exit = match exit {
            Some(ProcessExit::Code(code)) => Exit::Code(code),
            Some(ProcessExit::Signal(signal)) => Exit::Signal(signal),
            // The status was lost with the main thread: the daemon is ending.
            None => Exit::Signal(9),
        };
        let crashes = self.worker.crashes();
        let load = self.load();
        let after = self.worker.on_exit(Instant::now(), exit, load, random());
        let crashed = crashes != self.worker.crashes();
        let cause = match self.worker.last_crash() {
            Some(cause) if crashed => cause.clone(),
            _ => Cause::from(exit),
        };
        for number in self.calls.sent() {
            let error = match self.ending {
                Some(ending) => ending.cut_short(),
                None => CallError::Died(cause.clone()),
            };
            self.answer(number, ctx, |_| Err(error));
        }
        self.forget_jobs();
        self.end_cgroup(ctx);
        if crashed {
            repositories::clean_soon(&self.services);
        }
        if let Some(process) = self.process.take() {
            self.report_end(process, exit, crashed, &cause, ctx);
        }
        if let Some(timer) = self.heartbeat_timer.take() {
            ctx.cancel_future(timer);
        }
        self.after_exit(after, ctx);
    }

    pub(super) fn report_end(
        &self,
        process: WorkerProcess,
        exit: Exit,
        crashed: bool,
        cause: &Cause,
        ctx: &mut Context<Self>,
    ) {
        let (session, pid) = (self.session.clone(), process.monitor_pid());
        // Whoever ends the session kills what does not end by itself: that is no crash.
        if !crashed || self.ending.is_some() {
            tracing::info!(%session, pid, "worker ended");
            return;
        }
        if let Some(registry) = self.registry.upgrade() {
            // A full mailbox loses a count, and nothing else.
            registry.try_send(Crashed { session: session.clone() }).ok();
        }
        let (events, name) = (Rc::clone(&self.services.events), self.name.clone());
        let cause = cause.to_string();
        ctx.spawn(actix::fut::wrap_future(async move {
            let stderr = process.last_words().await;
            tracing::warn!(%session, pid, cause, stderr, "worker died");
            events.process_died(&session, &name, &cause, exit, &stderr);
        }));
    }

    pub(super) fn after_exit(&mut self, after: AfterExit, ctx: &mut Context<Self>) {
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
                tracing::error!(session = %self.session, %cause, "worker has failed");
                for number in self.calls.unsent() {
                    let cause = cause.clone();
                    self.answer(number, ctx, |_| Err(CallError::Failed(cause)));
                }
            }
        }
    }
}

fn asked_tier(setting: &str) -> Option<String> {
    (setting != "auto").then(|| setting.to_owned())
}

fn command_limits(limits: &LimitSettings) -> CommandLimits {
    let number = |n: usize| u64::try_from(n).ok().filter(|n| *n != 0);
    CommandLimits {
        processes: number(limits.processes.value),
        file_bytes: number(limits.file_mb.value).map(|mb| mb.saturating_mul(1024 * 1024)),
        cpu_s: Some(limits.cpu.value.as_secs()).filter(|seconds| *seconds != 0),
    }
}

/// Makes what a worker must find: its run directory, and a control group for its commands where that can
/// be had.
async fn make_place(
    services: Rc<Services>,
    session: SessionId,
    workspace: PathBuf,
) -> Result<Option<SessionPaths>, SpawnFailure> {
    // A workspace on a dead mount holds its thread for ever.
    let place = Arc::clone(&services.lookups).acquire_owned();
    let place = tokio::time::timeout(RUN_DIR_LIMIT, place).await;
    let Ok(Ok(place)) = place else { return Err(SpawnFailure::Unavailable) };
    let home = services.home.clone();
    let cgroups = services.cgroups.clone();
    let limits = Limits {
        processes: u32::try_from(services.config.limits.processes.value).unwrap_or(u32::MAX),
        ..Limits::default()
    };
    let make = move || {
        let _place = place;
        drop(workspace.read_dir().map_err(SpawnFailure::Workspace)?);
        let made = home.prepare_session_run_dir_blocking(session.as_str());
        drop(made.map_err(SpawnFailure::RunDir)?);
        let name: String = session.as_str().chars().map(plain).take(MAX_CGROUP_NAME).collect();
        let made = cgroups.map(|cgroups| cgroups.session_blocking(&name, &limits));
        Ok(made.and_then(|made| {
            made.inspect_err(|error| tracing::warn!(%session, %error, "no control group")).ok()
        }))
    };
    match tokio::time::timeout(RUN_DIR_LIMIT, actix_rt::task::spawn_blocking(make)).await {
        Ok(Ok(Ok(cgroup))) => Ok(cgroup),
        Ok(Ok(Err(failure))) => Err(failure),
        Ok(Err(_)) | Err(_) => Err(SpawnFailure::Unavailable),
    }
}

/// What may be in the name of a control group.
fn plain(c: char) -> char {
    if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }
}

/// A number that differs from worker to worker, for jitter only.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
