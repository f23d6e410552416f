//! Startup and shutdown of the daemon, and the order of their steps.
//!
//! Start: limits, the service manager's socket, directory, lock, log, metadata, stale socket, actors, bind, pid file.
//! The lock decides: only its holder may remove a stale socket.
//! Stop: refuse new work, let calls finish within the grace period, stop workers in parallel, flush
//! the metadata, remove the socket, remove the pid file. A second signal skips the waiting.

use crate::children::command_env;
use crate::children::login_env::{WritableSource, load_cached_blocking};
use crate::children::spawner::{self, SpawnSettings};
use crate::clients::listener::accept_clients;
use crate::clients::{self, metrics_endpoint};
use crate::errors::chain;
use crate::errors::start::{StartError, system};
use crate::health::WebSearchHealth;
use crate::health::executable::Executable;
use crate::health::service_manager::ServiceManager;
use crate::log;
use crate::methods::AgentTools;
use crate::metrics::Metrics;
use crate::metrics::endpoint::EndpointState;
use crate::registry::{ConfigHeld, Registry, Saving, shutdown_record};
use crate::remote::{self, RemoteControl};
use crate::service::build::{ActorThreadInputs, StartInputs, services};
use crate::service::shutdown::{self, StopSources};
use crate::service::{
    cleanup, load_state, memory_limit, memory_pressure, state_dir_watch, unfinished, watchdog,
};
use crate::services::{Services, StopRequest};
use crate::session::models::load_lists_blocking;
use crate::session::owner::Owner;
use crate::session::spending::Spent;
use actix::prelude::*;
use quackd_config::Config;
use quackd_egress::{Egress, EgressConfig, Key};
use quackd_home::{Home, InstanceLock, Tenure};
use quackd_ipc::alias::Alias;
use quackd_ipc::listener::{BindError, BoundSocket, SocketFile, clear_stale_blocking};
use quackd_process::{Launcher, Role, SelfExe};
use quackd_service::{Manager, activated_blocking};
use quackd_store::Snapshot;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use tokio::sync::mpsc;

/// Number of threads for file system access: lookups of directories, which may hang forever on a dead mount, and the
/// state directory.
const BLOCKING_THREADS: usize = 32;

/// Timeout for the end of the actors' thread. A hanging lookup blocks it.
const ACTORS_JOIN_TIMEOUT: Duration = Duration::from_millis(500);

/// Options of `quack daemon`.
#[derive(Debug, Clone, Copy)]
pub struct DaemonOptions {
    /// Detach from the caller's terminal; stderr goes to `/dev/null` once the start has succeeded.
    pub background: bool,
    /// Copy log lines to stderr.
    pub verbose: bool,
    /// The service manager that started the daemon, if any.
    pub service: Option<Manager>,
    /// Started instead of the Rubber Duck daemon, by a program that expects upstream's paths.
    pub as_rubber_duck: bool,
}

/// Result of a run of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// A client or a signal stopped it.
    Stopped,
    /// It stopped so that the next daemon can start.
    Restarting,
    /// Another instance holds the lock. Nothing was changed.
    AlreadyRunning,
}

/// Runs the daemon on the process's main thread until a client or a signal stops it.
pub fn run(options: DaemonOptions) -> Result<Ended, StartError> {
    if options.background {
        quackd_process::become_session_leader();
    }

    // Before the first thread starts.
    system("set limits", quackd_process::harden(Role::Supervisor))?;
    quackd_process::set_process_name("quackd");

    let home = if options.as_rubber_duck {
        Home::of_rubber_duck_blocking()?
    } else {
        Home::from_process_env_blocking()?
    };

    // The socket is only known by its descriptor number, so take it before any other file is opened.
    let activated = activated_blocking(&home.socket().path, &|name| std::env::var_os(name))?;
    home.prepare_dir_blocking()?;

    let Some(lock) = cleanup::take_lock_blocking(&home)? else {
        return Ok(Ended::AlreadyRunning);
    };

    let (config, config_file) = crate::health::next_daemon::read_config(&home)?;
    log::check_blocking(&home.log_file())
        .map_err(|reason| StartError::Log { path: home.log_file(), reason })?;
    // After the check, because the hook appends to this file.
    log::abort_on_panic(home.log_file());

    let (files, remote, pages) = remote::load_blocking(&home);
    let is_verbose = options.verbose || remote.config.log_to_stderr;
    let (logging, log) = log::start(&home.log_file(), &config.log.level.value, is_verbose);
    tracing::info!(pid = std::process::id(), version = quackd_protocol::VERSION, "daemon boot");

    let remote = RemoteControl::new(files, remote, pages);
    let service_manager = ServiceManager::new(options.service, activated.is_some());
    let start = StartInputs { home, config, config_file, activated, service_manager, remote, log };
    let result = run_locked(options, start, &lock);

    match &result {
        Ok(_) => tracing::info!("shutdown complete"),
        Err(error) => tracing::error!(error = %chain(error), "daemon failed to start"),
    }
    // Dropping the guard writes the queued lines, so it comes after the last one.
    drop(logging);
    result
}

/// Runs the daemon while the lock is held.
fn run_locked(
    options: DaemonOptions,
    start: StartInputs,
    _lock: &InstanceLock,
) -> Result<Ended, StartError> {
    let (home, config) = (start.home.clone(), &start.config);
    cleanup::end_left_commands(&home, config);
    cleanup::move_aside_run_dir(&home)?;

    let is_ours = start.activated.is_none();
    let endpoint = config.web_search.endpoint.value.clone();
    let key = Key::from_variables(|name| std::env::var_os(name))?;
    let web_search = WebSearchHealth { has_key: key.is_some(), endpoint: host_of(&endpoint) };
    let egress = Egress::start(EgressConfig::new(endpoint, key))?;

    let (cgroups, no_cgroups) = cleanup::cgroups(config);
    let (snapshot, saving, health) = load_state::load(&home, web_search, no_cgroups);
    let children = SpawnSettings {
        exe: system("open our own executable", SelfExe::open())?,
        launcher: launcher(config),
        max_live: config.worker.max_live.value,
    };

    let socket = home.socket();
    if socket.fallback {
        tracing::info!(path = %socket.path.display(), "socket path is too long; using the fallback");
    }

    // Only the holder of the lock may remove a stale socket, and this process holds it.
    if is_ours {
        clear_stale_blocking(&socket.path)?;
    }

    let alias = socket.alias.map(|at| Alias::new(at, socket.path.clone()));
    if let Some(alias) = &alias {
        make_alias(alias)?;
    }

    let tenure = Tenure::begin_blocking(&home)?;
    let metrics = Arc::<Metrics>::default();
    let (spawner, jobs) = spawner::spawner();
    let (ready, started) = sync_channel(1);

    let parts = ActorThreadInputs {
        start,
        tenure,
        socket: socket.path,
        alias: alias.clone(),
        cgroups: cgroups.clone(),
        executable: Executable::record_blocking(std::env::args_os().next()),
        interrupted: shutdown_record::load_blocking(&home.interrupted_file()),
        login: load_cached_blocking(&home.login_environment()),
        spent: Spent::load_blocking(&home.spending_file()),
        lists: load_lists_blocking(&home.model_lists()),
        egress,
        health,
        metrics: Arc::clone(&metrics),
        spawner,
        ready,
    };

    // A separate thread, because this one starts and reaps all children.
    let (done, actors_done) = sync_channel::<ActorThreadResult>(1);
    let actors = std::thread::Builder::new().name("actors".into()).spawn(move || {
        // The receiver exists until the process ends.
        done.send(serve(parts, snapshot, saving)).ok();
    });
    system("start the actors' thread", actors)?;

    let bound = wait_for_start(&started)?;
    // Not earlier: until here, the caller's terminal shows the errors of the start.
    if options.background {
        system("let go of stderr", quackd_process::redirect_stderr_to_null())?;
    }
    spawner::serve_blocking(&jobs, &children, &metrics);

    let ended = wait_for_end(&actors_done, bound, is_ours);
    if let Some(alias) = alias.filter(|_| is_ours) {
        alias.remove_blocking();
    }
    // The last owner kills the remaining processes and removes the group. If a hung thread still owns it, the next
    // daemon does so.
    drop(cgroups);

    if let Err(error) = quackd_home::remove_pid_file_blocking(&home) {
        tracing::warn!(%error, "cannot remove the pid file");
    }
    Ok(ended)
}

/// Creates the link for upstream's clients. Only logs a failure, because other clients do not use the link. Returns an
/// error if a daemon listens there.
fn make_alias(alias: &Alias) -> Result<(), StartError> {
    match alias.make_blocking() {
        Ok(()) => Ok(()),
        Err(error @ BindError::InUse(_)) => Err(error.into()),
        Err(error) => {
            let path = alias.path().display();
            tracing::warn!(%error, %path, "cannot create the socket link, clients of Rubber Duck cannot find this daemon");
            Ok(())
        }
    }
}

/// Waits for the end of the actors' thread. Removes the socket unless the service manager owns it, which starts the
/// next daemon when a client connects.
fn wait_for_end(
    actors_done: &Receiver<ActorThreadResult>,
    bound: SocketFile,
    is_ours: bool,
) -> Ended {
    // A panic on that thread would have aborted the process already. After the timeout, only system calls that hang in
    // the kernel are left. They end with the process.
    let served = actors_done.recv_timeout(ACTORS_JOIN_TIMEOUT).unwrap_or_else(|error| {
        if error == RecvTimeoutError::Timeout {
            tracing::warn!("actors' thread did not end in time");
        }
        ActorThreadResult::default()
    });

    // A socket that was created again is always the daemon's own.
    if let Some(file) = served.made_again.or_else(|| is_ours.then_some(bound)) {
        file.unlink_blocking();
    }
    match served.request {
        Some(StopRequest::Restart) => Ended::Restarting,
        Some(StopRequest::Shutdown) | None => Ended::Stopped,
    }
}

/// Result of the actors' thread.
#[derive(Debug, Default)]
struct ActorThreadResult {
    /// File of the socket, if the socket was created again after the start.
    made_again: Option<SocketFile>,
    /// `None` if the thread did not start, or did not end in time.
    request: Option<StopRequest>,
}

fn wait_for_start(
    started: &Receiver<Result<SocketFile, StartError>>,
) -> Result<SocketFile, StartError> {
    started.recv().unwrap_or_else(|_| {
        let ended = std::io::Error::other("the thread ended");
        system("start the actors' thread", Err(ended))
    })
}

/// Program that starts the workers. It gets the environment of commands: no keys, but a PATH.
fn launcher(config: &Config) -> Option<Launcher> {
    let words = config.worker.launcher.value.clone();
    let mut env = command_env::for_tools(std::env::vars_os());
    if let Some((_, path)) = env.iter_mut().find(|(name, _)| name == "PATH") {
        // The launcher runs unconfined, so a directory in a workspace must not shadow system programs.
        *path = quackd_process::system_first(path);
    }
    (!words.is_empty()).then_some(Launcher { words, env })
}

/// Returns the host of a checked URL, for display.
fn host_of(endpoint: &str) -> String {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // Credentials in the address must not be displayed.
    authority.rsplit('@').next().unwrap_or_default().to_owned()
}

/// Runs the actors' thread: one arbiter for everything.
fn serve(parts: ActorThreadInputs, loaded: Snapshot, saving: Saving) -> ActorThreadResult {
    let system = System::with_tokio_rt(|| {
        let built = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .build();
        #[expect(
            clippy::panic,
            reason = "the daemon cannot run without a runtime: the panic hook reports it and aborts"
        )]
        built.unwrap_or_else(|error| panic!("cannot build the runtime: {error}"))
    });
    system.block_on(serve_until_stopped(parts, loaded, saving))
}

async fn serve_until_stopped(
    mut parts: ActorThreadInputs,
    loaded: Snapshot,
    saving: Saving,
) -> ActorThreadResult {
    let (stop, stopped) = mpsc::channel(1);
    // Install the handlers before the first client gets a reply, so that no signal kills the process.
    let mut stop_sources = StopSources::new(stopped);

    let bound = match parts.start.activated.take() {
        Some(listener) => BoundSocket::adopt(listener, &parts.socket),
        None => BoundSocket::bind(&parts.socket),
    };
    let bound = match bound {
        Ok(bound) => bound,
        Err(error) => {
            // The main thread waits for it.
            parts.ready.send(Err(error.into())).ok();
            return ActorThreadResult::default();
        }
    };

    let (ready, tenure) = (parts.ready.clone(), parts.tenure.clone());
    let services = services(parts, stop);
    begin_probing(&services);

    let (actors, health) = (Rc::clone(&services.actors), Rc::clone(&services.health));
    let (voice, clients) = (Rc::clone(&services.voice), Rc::clone(&services.clients));
    let registry = Registry::new(actors, health, voice, clients, loaded, saving).start();

    let owner = Owner::new(&registry);
    services.sessions.models.set_owner(owner.clone());
    if let Some(record) = services.daemon.config_file.record.clone() {
        // Without a registry the daemon is stopping.
        registry.send(ConfigHeld(record)).await.ok();
    }

    services.sessions.children.login.set_writable(WritableSource(Box::new(move || {
        let owner = owner.clone();
        Box::pin(async move { owner.writable().await })
    })));

    match AgentTools::new(&services, registry.clone()) {
        // Nothing else sets it.
        Ok(tools) => drop(services.sessions.tool_runner.set(Box::new(tools))),
        Err(error) => tracing::error!(%error, "agents have no tools"),
    }

    let file = bound.file();
    let listening = actix::spawn(accept_clients(bound, Rc::clone(&services), registry.clone()));
    write_pid_file(&services).await;
    tracing::info!(socket = %services.daemon.socket.display(), "daemon started");
    // The main thread waits for it.
    ready.send(Ok(file)).ok();

    let reporting = actix::spawn(watchdog::report(Rc::clone(&services), registry.clone()));
    services.sessions.children.repo_cleanup.schedule();
    actix::spawn(unfinished::take_back(Rc::clone(&services.sessions), registry.clone()));
    actix::spawn(monitor_loop(Rc::clone(&services)));
    actix::spawn(state_dir_watch::watch(Rc::clone(&services), tenure));
    actix::spawn(memory_pressure::watch(Rc::clone(&services)));
    actix::spawn(memory_limit::watch(Rc::clone(&services)));
    clients::remote::start(&services, &registry);
    metrics_endpoint::start(&services, &registry);
    services.retention.start(&registry);

    let request = stop_sources.any().await;

    tracing::info!("shutting down");
    services.service_manager.stopping();
    services.sessions.children.login.stopping().begin();
    shutdown::drain(request, &mut stop_sources, &services, &registry).await;

    reporting.abort();
    listening.abort();
    services.metrics_endpoint.set(EndpointState::Off);
    services.links.close().await;
    services.remote.close().await;
    // When this process exits, the service manager kills its remaining children.
    services.sessions.children.login.stopping().end().await;
    services.sessions.children.spawner.stop();
    ActorThreadResult { made_again: services.socket_file.take(), request: Some(request) }
}

/// Starts the probe now, so that the first worker rarely waits for it.
fn begin_probing(services: &Rc<Services>) {
    let services = Rc::clone(services);
    actix::spawn(async move {
        if let Err(error) =
            services.sessions.children.probing.result(&services.sessions.children.spawner).await
        {
            tracing::warn!(%error, "system probe failed, the next worker's start tries again");
        }
    });
}

/// Monitors the actors' thread. After a suspend or a stop, resets the timers of all children.
async fn monitor_loop(services: Rc<Services>) {
    let sessions = &services.sessions;
    loop {
        let is_used = sessions.metrics.clients.get() != 0 || sessions.table.is_any_live();
        if services.loop_monitor.tick(is_used).await {
            sessions.table.reset_timers();
        }
    }
}

async fn write_pid_file(services: &Services) {
    let home = services.daemon.home.clone();
    let written =
        actix_rt::task::spawn_blocking(move || quackd_home::write_pid_file_blocking(&home)).await;
    // For the user and upstream's tools. quackd itself does not need it.
    if let Ok(Err(error)) = written {
        tracing::warn!(%error, "cannot write the pid file");
    }
}
