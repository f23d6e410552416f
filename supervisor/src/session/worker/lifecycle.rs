//! The worker's lifecycle: starts it on demand, waits for its exit, and restarts it if the state machine requires it.

use super::actor::WorkerActor;
use super::kept::{KeptAgents, KeptChoice, KeptDirectories, share_logins_blocking};
use super::place::{DirectoryId, Place, id_blocking};
use crate::children::command_env::Variables;
use crate::children::spawner::SpawnRequestError;
use crate::children::{
    ChildProcess, Death, Drain, LifecycleDriver, ProcessKind, create_cgroup, group_name,
};
use crate::daemon_info::test_sandbox_exec;
use crate::errors::CallError;
use crate::platform::HAS_NAMESPACES;
use crate::pool::memory::session_limit_mb_blocking;
use crate::pool::network::TransparentPorts;
use crate::pool::sessions::Full;
use crate::session::far_client::client_variables;
use crate::session::owner::Owner;
use crate::session::services::SessionServices;
use actix::prelude::*;
use quackd_config::{LimitSettings, LoginChoice};
use quackd_process::SessionPaths;
use quackd_protocol::SessionId;
use quackd_protocol::credentials::{Credentials, MAX_KNOWN_HOSTS};
use quackd_protocol::limits::UPDATE_CREDITS;
use quackd_protocol::policy::Profile;
use quackd_protocol::tiers::Probe;
use quackd_protocol::worker::{
    CommandLimits, FRAME_PROTOCOL, IsolatedStart, SandboxStart, Start, ToWorker,
};
use quackd_supervision::{Cause, Demander, Exit, Load, SESSION_WORKER};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// Maximum wait of a new worker for the login environment. Shorter than the time that a call waits for its worker. A
/// worker that started without it is replaced later ([`WorkerActor::restart_if_outdated`]).
const LOGIN_LIMIT: Duration = Duration::from_millis(1000);

/// Timeout for the state directory, because its disk may hang.
const RUN_DIR_LIMIT: Duration = Duration::from_secs(5);

impl WorkerActor {
    /// Starts a process. Waits for a worker slot first, then for the environment.
    pub(super) fn start_worker(&mut self, ctx: &mut Context<Self>) {
        self.hello = None;
        self.update_credits = UPDATE_CREDITS;
        self.forget_jobs();

        let services = Rc::clone(&self.services);
        let session = self.session.id.clone();
        let (owner, is_far) = (self.owner.clone(), self.far.is_some());
        // The other machine makes its own probe.
        let is_probed = !is_far && self.policy.profile != Profile::FullAccess;

        let getting_ready = async move {
            let slot = services.table.acquire(&session, ProcessKind::Worker).await;
            slot.map_err(|Full(max)| SpawnRequestError::TooManyWorkers(max))?;

            // Known already, except for the first workers of a daemon without a cached login environment.
            let env = services.children.login.env_for_worker(LOGIN_LIMIT).await;
            if is_far {
                return Ok((client_variables(&services, &owner, env).await?, None));
            }
            let probe = if is_probed {
                services.children.probing.result(&services.children.spawner).await
            } else {
                Ok(None)
            };
            Ok((env, probe?))
        };

        ctx.spawn(getting_ready.into_actor(self).map(|ready, handle, ctx| {
            handle.login_version = handle.services.children.login.version();
            match (ready, handle.child.ending) {
                (Ok((env, probe)), None) => handle.start_process(env, probe, ctx),
                (Ok(_), Some(_)) => {
                    handle.spawn_failed(&SpawnRequestError::Unavailable, ctx);
                }
                (Err(failure), _) => handle.spawn_failed(&failure, ctx),
            }
        }));
    }

    fn start_process(&mut self, env: Variables, probe: Option<Probe>, ctx: &mut Context<Self>) {
        if self.far.is_some() {
            return self.start_link(env, ctx);
        }

        let workspace = PathBuf::from(&self.session.workspace);
        let is_confined = self.policy.profile != Profile::FullAccess;
        let keeps = HAS_NAMESPACES && is_confined && self.policy.may_write();
        let isolated = self.isolated.as_ref().map(|_| self.session.id.clone());
        let choice = KeptChoice {
            caches: keeps && self.services.daemon.config.keep.caches_mb.value != 0,
            agents: keeps.then(|| {
                let daemon = &self.services.daemon;
                let agents = daemon.config.guest_agents();
                KeptAgents::of(&env, isolated, agents, daemon.user_home.clone())
            }),
        };
        let making = make_place(
            Rc::clone(&self.services),
            self.owner.clone(),
            self.session.id.clone(),
            workspace,
            self.policy.writable_roots.clone(),
            choice,
        );

        ctx.spawn(making.into_actor(self).map(move |made, handle, ctx| {
            match (made, handle.child.ending) {
                (Ok(made), None) => {
                    handle.place = Place::of(made.id);
                    handle.spawn_process(env, probe, made, ctx);
                }
                (Ok(made), Some(_)) => {
                    handle.child.cgroup = made.cgroup;
                    handle.spawn_failed(&SpawnRequestError::Unavailable, ctx);
                }
                (Err(SpawnRequestError::Workspace(error)), _) => {
                    let workspace = handle.session.workspace.clone();
                    handle.on_workspace_error(&error, &CallError::NoWorkspace(workspace), ctx);
                }
                (Err(SpawnRequestError::NoPlace(why)), _) => {
                    handle.on_workspace_error(&why, &CallError::NoPlace(why.clone()), ctx);
                }
                (Err(failure), _) => handle.spawn_failed(&failure, ctx),
            }
        }));
    }

    fn spawn_process(
        &mut self,
        env: Variables,
        probe: Option<Probe>,
        made: MadePlace,
        ctx: &mut Context<Self>,
    ) {
        let MadePlace { cgroup, kept, memory, .. } = made;
        let services = Rc::clone(&self.services);
        let run_dir = services.daemon.home.session_run_dir(self.session.id.as_str());
        let isolated = self.isolated.clone().map(|copied| IsolatedStart {
            directory: services
                .daemon
                .home
                .session_isolated_dir(self.session.id.as_str())
                .map(|directory| directory.display().to_string())
                .unwrap_or_default(),
            copied,
        });

        // Paths and numbers always have a JSON form.
        let cgroup_for_worker = cgroup.as_ref().and_then(|paths| serde_json::to_value(paths).ok());

        self.note_start();
        let is_transparent = services.daemon.config.sandbox.transparent.value;
        self.ports = TransparentPorts::of(&self.rules, is_transparent);

        let start = ToWorker::Start(Box::new(Start {
            proto: FRAME_PROTOCOL,
            session_id: self.session.id.clone(),
            label: self.session.label.clone(),
            workspace: self.session.workspace.clone(),
            run_dir: run_dir.map(|dir| dir.display().to_string()).unwrap_or_default(),
            env,
            safe_mode: false,
            respect_ignore_files: services.daemon.config.tools.respect_ignore_files.value,
            limits: command_limits(
                &services.daemon.config.limits,
                memory,
                services.pool.disk.min_free(),
            ),
            sandbox: SandboxStart {
                policy: self.policy.clone(),
                probe,
                tier: services.daemon.config.sandbox.tier.value,
                sandbox_exec: test_sandbox_exec(),
                home: services.daemon.user_home.display().to_string(),
                state_dir: services.daemon.home.dir().display().to_string(),
                caches: kept.caches,
                agents: kept.agents,
                isolated,
                ports: self.ports.list(),
                cgroup: cgroup_for_worker,
            },
            credentials: Credentials {
                // Without an agent, git would fail to sign instead of not signing.
                ssh: services.serves_ssh_agent(),
                git: services.daemon.config.credentials.git.value,
                hosts: self.rules.hosts().known_hosts().take(MAX_KNOWN_HOSTS).collect(),
            },
            is_far: false,
            far: None,
        }));

        let descriptors = self.make_pair();
        self.launch(&start, &descriptors, cgroup, ctx);
    }

    /// Notes the policy of a new process, and forgets what made a replacement of the last one necessary.
    pub(super) fn note_start(&mut self) {
        self.running_policy = Some(Rc::new(self.policy.clone()));
        self.workspace_replaced = false;
        self.files_replaced = false;
        self.ssh_host_added = false;
        self.network_failed = false;
        self.ends_jobs = false;
        self.client_left = false;
    }

    /// Fails the queued calls because the workspace cannot be opened. The next call tries again.
    pub(super) fn on_workspace_error(
        &mut self,
        why: &dyn std::fmt::Display,
        error: &CallError,
        ctx: &mut Context<Self>,
    ) {
        tracing::warn!(session = %self.session.id, workspace = self.session.workspace, %why, "worker not started, workspace unusable");
        for number in self.calls.unsent() {
            self.answer(number, ctx, |_| Err(error.clone()));
        }
        self.not_started(ctx);
    }

    fn forget_jobs(&mut self) {
        self.note_lost_jobs();
        self.jobs.clear();
        self.services.pool.slots.set_jobs(&self.session.id, 0);
    }

    pub(super) fn load(&self) -> Load {
        Load { in_flight: self.calls.any_sent(), waiting: self.calls.any_unsent() }
    }

    /// Handles the exit of the process. Everything below it is gone.
    pub(super) fn worker_ended(&mut self, exit: Option<Exit>, ctx: &mut Context<Self>) {
        // Without a status, the main thread has ended: the daemon is shutting down.
        let exit = exit.unwrap_or(Exit::Signal(9));

        let (after, process, crash) = self.note_exit(exit, self.load(), ctx);
        let cause = crash.clone().unwrap_or_else(|| Cause::from(exit));

        for number in self.calls.sent() {
            let error = match self.child.ending {
                Some(ending) => ending.cut_short(),
                None => CallError::Died(cause.clone()),
            };
            self.answer(number, ctx, |_| Err(error));
        }

        if !self.has_calls()
            && let Some((_, timer)) = self.call_timer.take()
        {
            ctx.cancel_future(timer);
        }
        self.end_terminals(crash.as_ref());
        self.forget_jobs();
        self.end_network();
        self.share_logins();
        self.hello = None;
        if let Some(link) = &mut self.far {
            link.notice = None;
        }

        // A monitor that was killed has not removed the worker's placeholders in git repositories.
        if crash.is_some() {
            self.services.children.repo_cleanup.schedule();
        }

        if let Some(process) = process {
            self.report_end(process, exit, crash, ctx);
        }
        self.after_exit(after, ctx);
    }

    /// Gives the logins of the workspace to other workspaces, if the user has configured it. A failure is repeated at the
    /// start of the next worker.
    fn share_logins(&self) {
        let mut agents = self.services.daemon.config.guest_agents();
        agents.retain(|agent| agent.login == LoginChoice::Shared);
        if agents.is_empty() || self.isolated.is_some() || self.far.is_some() {
            return;
        }

        let services = Rc::clone(&self.services);
        let workspace = self.session.workspace.clone();
        // The actor may stop earlier.
        actix::spawn(async move {
            let home = services.daemon.home.clone();
            let share = move || {
                let own = home.workspace_agents_dir(&workspace, None);
                agents.iter().for_each(|agent| share_logins_blocking(&home, &own, agent, true));
            };
            if services.look(RUN_DIR_LIMIT, share).await.is_err() {
                tracing::warn!("logins not shared, the disk is slow");
            }
        });
    }

    fn report_end(
        &self,
        process: ChildProcess,
        exit: Exit,
        crash: Option<Cause>,
        ctx: &mut Context<Self>,
    ) {
        let (session, pid) = (self.session.id.clone(), process.monitor_pid());

        // At the end of a session, the supervisor kills a process that does not exit. That is not a crash.
        let Some(cause) = crash.filter(|_| self.child.ending.is_none()) else {
            tracing::info!(%session, pid, "worker ended");
            return;
        };

        self.owner.crashed(&session);
        let (name, label) = (self.session.name(), self.session.label.clone());
        let events = Rc::clone(&self.services.events);
        let deaths = Rc::clone(&self.services.children.deaths);
        let started = process.started;
        let (kind, cause) = (cause.kind().name(), cause.to_string());

        ctx.spawn(actix::fut::wrap_future(async move {
            let stderr = process.stderr_tail().await;
            tracing::warn!(%session, pid, cause, stderr, "worker died");
            deaths.note(&Death {
                spec: &SESSION_WORKER,
                session: Some((&session, &name, &label)),
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

/// Start a worker soon, because a client attached. Retries after a failure.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct StartWorker;

impl Handler<StartWorker> for WorkerActor {
    type Result = ();

    fn handle(&mut self, _: StartWorker, ctx: &mut Self::Context) {
        if self.child.ending.is_none() {
            self.demand(Demander::Attach, ctx);
        }
    }
}

impl Handler<Drain> for WorkerActor {
    type Result = ResponseFuture<()>;

    /// Refuses the waiting calls and lets the running ones finish.
    fn handle(&mut self, Drain { until, ending }: Drain, ctx: &mut Self::Context) -> Self::Result {
        self.child.ending = Some(ending);
        for number in self.calls.unsent() {
            self.answer(number, ctx, |_| Err(ending.refusal()));
        }
        let gone = self.kill_at(until, ctx);
        self.end_if_drained(ctx);
        Box::pin(async {
            if let Some(gone) = gone {
                // A stopped actor has no process.
                gone.await.ok();
            }
        })
    }
}

impl WorkerActor {
    pub(super) fn end_if_drained(&mut self, ctx: &mut Context<Self>) {
        if self.child.ending.is_some() && !self.calls.any_sent() {
            self.drain(ctx);
        }
    }
}

fn in_bytes(mb: u64) -> u64 {
    mb.saturating_mul(1024 * 1024)
}

pub(super) fn command_limits(
    limits: &LimitSettings,
    memory: Option<u64>,
    min_free: u64,
) -> CommandLimits {
    let number = |n: usize| u64::try_from(n).ok().filter(|n| *n != 0);
    CommandLimits {
        processes: number(limits.processes.value),
        memory_bytes: memory,
        file_bytes: number(limits.file_mb.value).map(in_bytes),
        cpu_s: Some(limits.cpu.value.as_secs()).filter(|seconds| *seconds != 0),
        // 0 means no limit, and must be sent.
        min_free_bytes: Some(min_free),
    }
}

/// Parts of the system that are prepared for a worker before it starts.
struct MadePlace {
    cgroup: Option<SessionPaths>,
    /// Directories that outlive the worker.
    kept: KeptDirectories,
    /// Identity of the workspace.
    id: Option<DirectoryId>,
    /// Memory limit of the session, in bytes. `None`: it has none.
    memory: Option<u64>,
}

/// Creates the worker's run directory and, if available, a control group for its commands and the directories that
/// outlive it.
async fn make_place(
    services: Rc<SessionServices>,
    owner: Owner,
    session: SessionId,
    workspace: PathBuf,
    roots: Vec<PathBuf>,
    choice: KeptChoice,
) -> Result<MadePlace, SpawnRequestError> {
    let (home, places) = (services.daemon.home.clone(), services.daemon.places());
    let obeyed = services.daemon.obeyed.clone();

    let writable = if obeyed.has_launcher() {
        owner.writable().await.ok_or(SpawnRequestError::Unavailable)?
    } else {
        Vec::new()
    };

    let cgroups = services.children.cgroups.clone();
    let processes =
        u32::try_from(services.daemon.config.limits.processes.value).unwrap_or(u32::MAX);
    let memory = services.daemon.config.limits.session_memory_mb.value;

    let make = move || {
        drop(workspace.read_dir().map_err(SpawnRequestError::Workspace)?);
        // Another program may have written the path to the metadata, and it may have become a link.
        places.check_blocking(&workspace).map_err(SpawnRequestError::NoPlace)?;
        if let Some(held) = obeyed.held_launcher_blocking(writable) {
            return Err(SpawnRequestError::Launcher(Box::new(held)));
        }

        let made = home.prepare_session_run_dir_blocking(session.as_str());
        drop(made.map_err(SpawnRequestError::RunDir)?);
        let kept = choice.make_blocking(&home, &workspace);
        let id = id_blocking(&workspace, &roots).ok();

        let group = cgroups.as_ref().map(|cgroups| cgroups.directory());
        let memory = session_limit_mb_blocking(memory, group.as_deref()).map(in_bytes);
        let cgroup = create_cgroup(cgroups, &group_name("", &session), processes, memory);
        Ok(MadePlace { cgroup, kept, id, memory })
    };

    let made = services.look(RUN_DIR_LIMIT, make).await;
    made.unwrap_or(Err(SpawnRequestError::Unavailable))
}
