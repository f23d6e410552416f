//! The worker's life: started when somebody wants it, watched until it has ended, started again if the
//! state machine says so.

use super::WorkerHandle;
use crate::children::command_env::Variables;
use crate::children::spawner::SpawnFailure;
use crate::children::{ChildProcess, Death, Life, control_group, group_name};
use crate::errors::CallError;
use crate::pool::session_status::Stopped;
use crate::session::services::SessionServices;
use crate::workspaces;
use actix::prelude::*;
use quackd_config::LimitSettings;
use quackd_process::{Exit as ProcessExit, SessionPaths};
use quackd_protocol::SessionId;
use quackd_protocol::limits::UPDATE_CREDITS;
use quackd_protocol::policy::Profile;
use quackd_protocol::worker::{
    CommandLimits, FRAME_PROTOCOL, Probe, SandboxStart, Start, ToWorker,
};
use quackd_supervision::{Cause, Demander, Exit, Load, SESSION_WORKER};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long a worker waits for the user's login environment: less than a call waits for its worker. One
/// that started without is replaced when the answer is there ([`WorkerHandle::replace_outdated`]).
const LOGIN_LIMIT: Duration = Duration::from_millis(1000);

/// Our own disk may hang too.
const RUN_DIR_LIMIT: Duration = Duration::from_secs(5);

/// A client attached: have a worker ready soon, and try again after a failure.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Wake;

impl Handler<Wake> for WorkerHandle {
    type Result = ();

    fn handle(&mut self, _: Wake, ctx: &mut Self::Context) {
        if self.child.ending.is_none() {
            self.demand(Demander::Attach, ctx);
        }
    }
}

impl WorkerHandle {
    /// A new process is wanted: waits for a place among those that may live, then for its environment.
    pub(super) fn start_worker(&mut self, ctx: &mut Context<Self>) {
        self.hello = None;
        self.update_credits = UPDATE_CREDITS;
        self.forget_jobs();
        let services = Rc::clone(&self.services);
        let session = self.session.clone();
        let is_confined = self.policy.profile != Profile::FullAccess;
        let getting_ready = async move {
            services.pool.workers.take_place(&session).await?;
            // Known already, but for the first workers of a daemon that knows nothing of its user yet.
            let env = services.children.login.environment_for_worker(LOGIN_LIMIT).await;
            let probe = match is_confined {
                true => services.children.probing.result(&services.children.spawner).await,
                false => Ok(None),
            };
            Ok((env, probe?))
        };
        ctx.spawn(getting_ready.into_actor(self).map(|ready, handle, ctx| {
            handle.login_version = handle.services.children.login.version();
            match (ready, handle.child.ending) {
                (Ok((env, probe)), None) => handle.start_process(env, probe, ctx),
                (Ok(_), Some(_)) => handle.spawn_failed(&SpawnFailure::Unavailable, ctx),
                (Err(failure), _) => handle.spawn_failed(&failure, ctx),
            }
        }));
    }

    fn start_process(&mut self, env: Variables, probe: Option<Probe>, ctx: &mut Context<Self>) {
        let workspace = PathBuf::from(&self.workspace);
        let making = make_place(Rc::clone(&self.services), self.session.clone(), workspace);
        ctx.spawn(making.into_actor(self).map(move |made, handle, ctx| {
            match (made, handle.child.ending) {
                (Ok(cgroup), None) => handle.spawn_process((env, probe), cgroup, ctx),
                (Ok(cgroup), Some(_)) => {
                    handle.child.cgroup = cgroup;
                    handle.spawn_failed(&SpawnFailure::Unavailable, ctx);
                }
                (Err(SpawnFailure::Workspace(error)), _) => {
                    let workspace = handle.workspace.clone();
                    handle.no_workspace(&error, &CallError::NoWorkspace(workspace), ctx);
                }
                (Err(SpawnFailure::NoPlace(why)), _) => {
                    handle.no_workspace(&why, &CallError::NoPlace(why.clone()), ctx);
                }
                (Err(failure), _) => handle.spawn_failed(&failure, ctx),
            }
        }));
    }

    fn spawn_process(
        &mut self,
        (env, probe): (Variables, Option<Probe>),
        cgroup: Option<SessionPaths>,
        ctx: &mut Context<Self>,
    ) {
        let services = Rc::clone(&self.services);
        let run_dir = services.daemon.home.session_run_dir(self.session.as_str());
        // Paths and numbers: there is always a JSON form of them.
        let cgroup_for_worker = cgroup.as_ref().and_then(|paths| serde_json::to_value(paths).ok());
        self.given_policy = Some(self.policy.clone());
        self.is_stale = false;
        self.ends_jobs = false;
        let start = ToWorker::Start(Box::new(Start {
            proto: FRAME_PROTOCOL,
            session_id: self.session.clone(),
            workspace: self.workspace.clone(),
            run_dir: run_dir.map(|dir| dir.display().to_string()).unwrap_or_default(),
            env,
            safe_mode: false,
            respect_ignore_files: services.daemon.config.tools.respect_ignore_files.value,
            limits: command_limits(&services.daemon.config.limits, services.pool.disk.min_free()),
            sandbox: SandboxStart {
                policy: self.policy.clone(),
                probe,
                tier: asked_tier(&services.daemon.config.sandbox.tier.value),
                home: services.daemon.user_home.display().to_string(),
                state_dir: services.daemon.home.dir().display().to_string(),
                cgroup: cgroup_for_worker,
            },
        }));
        self.launch(&start, cgroup, ctx);
    }

    /// There is no directory to work in. Who waits is told so; who comes next has it looked for again.
    fn no_workspace(
        &mut self,
        why: &dyn std::fmt::Display,
        error: &CallError,
        ctx: &mut Context<Self>,
    ) {
        tracing::warn!(session = %self.session, workspace = self.workspace, %why, "no worker is started: the workspace cannot be used");
        for number in self.calls.unsent() {
            self.answer(number, ctx, |_| Err(error.clone()));
        }
        self.not_started(ctx);
    }

    fn forget_jobs(&mut self) {
        self.jobs.clear();
        self.services.pool.slots.set_jobs(&self.session, 0);
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
        let (after, process, crash) = self.note_exit(exit, self.load(), ctx);
        let cause = crash.clone().unwrap_or_else(|| Cause::from(exit));
        for number in self.calls.sent() {
            let error = match self.child.ending {
                Some(ending) => ending.cut_short(),
                None => CallError::Died(cause.clone()),
            };
            self.answer(number, ctx, |_| Err(error));
        }
        self.forget_jobs();
        self.hello = None;
        self.stopped = match &crash {
            Some(cause) => Stopped::Died(cause.to_string()),
            None => self.evicted.take().map_or(Stopped::Ended, Stopped::Evicted),
        };
        if crash.is_some() {
            self.services.children.repo_cleanup.schedule();
        }
        if let Some(process) = process {
            self.report_end(process, exit, crash, ctx);
        }
        self.after_exit(after, ctx);
    }

    fn report_end(
        &self,
        process: ChildProcess,
        exit: Exit,
        crash: Option<Cause>,
        ctx: &mut Context<Self>,
    ) {
        let (session, pid) = (self.session.clone(), process.monitor_pid());
        // Whoever ends the session kills what does not end by itself: that is no crash.
        let Some(cause) = crash.filter(|_| self.child.ending.is_none()) else {
            tracing::info!(%session, pid, "worker ended");
            return;
        };
        self.owner.crashed(&session);
        let (events, name) = (Rc::clone(&self.services.events), self.name.clone());
        let deaths = Rc::clone(&self.services.children.deaths);
        let started = process.started;
        let (kind, cause) = (cause.kind().name(), cause.to_string());
        ctx.spawn(actix::fut::wrap_future(async move {
            let stderr = process.last_words().await;
            tracing::warn!(%session, pid, cause, stderr, "worker died");
            deaths.note(&Death {
                spec: &SESSION_WORKER,
                session: Some((&session, &name)),
                pid,
                exit: Some(exit),
                kind,
                cause: &cause,
                last_words: &stderr,
                started: Some(started),
            });
            events.process_died(&session, &name, &cause, exit, &stderr);
        }));
    }
}

fn asked_tier(setting: &str) -> Option<String> {
    (setting != "auto").then(|| setting.to_owned())
}

fn command_limits(limits: &LimitSettings, min_free: u64) -> CommandLimits {
    let number = |n: usize| u64::try_from(n).ok().filter(|n| *n != 0);
    CommandLimits {
        processes: number(limits.processes.value),
        file_bytes: number(limits.file_mb.value).map(|mb| mb.saturating_mul(1024 * 1024)),
        cpu_s: Some(limits.cpu.value.as_secs()).filter(|seconds| *seconds != 0),
        // 0 is no limit, which is said and not left out.
        min_free_bytes: Some(min_free),
    }
}

/// Makes what a worker must find: its run directory, and a control group for its commands where that can
/// be had.
async fn make_place(
    services: Rc<SessionServices>,
    session: SessionId,
    workspace: PathBuf,
) -> Result<Option<SessionPaths>, SpawnFailure> {
    // A workspace on a dead mount holds its thread for ever.
    let place = Arc::clone(&services.lookups).acquire_owned();
    let place = tokio::time::timeout(RUN_DIR_LIMIT, place).await;
    let Ok(Ok(place)) = place else { return Err(SpawnFailure::Unavailable) };
    let (home, user_home) = (services.daemon.home.clone(), services.daemon.user_home.clone());
    let cgroups = services.children.cgroups.clone();
    let processes =
        u32::try_from(services.daemon.config.limits.processes.value).unwrap_or(u32::MAX);
    let make = move || {
        let _place = place;
        drop(workspace.read_dir().map_err(SpawnFailure::Workspace)?);
        // The metadata may have it of another program, and a link may have been put into its place.
        workspaces::check_blocking(&workspace, &user_home).map_err(SpawnFailure::NoPlace)?;
        let made = home.prepare_session_run_dir_blocking(session.as_str());
        drop(made.map_err(SpawnFailure::RunDir)?);
        Ok(control_group(cgroups, &group_name("", &session), processes))
    };
    match tokio::time::timeout(RUN_DIR_LIMIT, actix_rt::task::spawn_blocking(make)).await {
        Ok(Ok(Ok(cgroup))) => Ok(cgroup),
        Ok(Ok(Err(failure))) => Err(failure),
        Ok(Err(_)) | Err(_) => Err(SpawnFailure::Unavailable),
    }
}
