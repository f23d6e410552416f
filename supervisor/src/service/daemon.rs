//! The life of the daemon: what is done in which order at start and at stop.
//!
//! Start: limits, the service manager's socket, directory, lock, log, metadata, stale socket, actors, bind,
//! pid file. The lock is the authority: whoever holds it may remove a stale socket and nobody else does.
//! Stop: refuse new work, let calls finish up to the grace, end workers side by side, flush the
//! metadata, unlink our socket, remove the pid file. A second signal skips the waiting.

use crate::children::command_env;
use crate::children::login_env::load_cached_blocking;
use crate::children::spawner::{self, Children};
use crate::clients;
use crate::clients::listener::accept_clients;
use crate::clients::metrics_endpoint::{self};
use crate::daemon_info::ConfigFile;
use crate::errors::chain;
use crate::errors::start::system;
use crate::health::WebSearchHealth;
use crate::health::executable::Executable;
use crate::health::service_manager::Managed;
use crate::log::{self, LogControl};
use crate::metrics::Metrics;
use crate::registry::shutdown_record::{self};
use crate::registry::{Registry, Saving};
use crate::remote::{self, RemoteControl};
use crate::service::build::{Parts, services};
use crate::service::cleanup;
use crate::service::load_state;
use crate::service::memory_limit;
use crate::service::memory_pressure;
use crate::service::shutdown::{self, StopSignals};
use crate::service::state_dir_watch;
use crate::service::watchdog;
use crate::services::{Services, Stop};
use actix::prelude::*;
use quackd_config::Config;
use quackd_egress::{Egress, EgressConfig, Key};
use quackd_home::{Home, InstanceLock, Tenure};
use quackd_ipc::alias::Alias;
use quackd_ipc::listener::{BindError, BoundSocket, SocketFile, clear_stale_blocking};
use quackd_process::{Launcher, Role, SelfExe};
use quackd_service::{Manager, activated_blocking};
use quackd_store::Snapshot;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use tokio::sync::mpsc;

/// Threads for what touches a file system: directory look-ups, which a dead mount can hold for ever, and
/// our own directory.
const BLOCKING_THREADS: usize = 32;

/// How long the actors' thread may take to end when all is done; a look-up that hangs keeps it.
const ACTORS_END: Duration = Duration::from_millis(500);

/// How `quack daemon` was called.
#[derive(Debug, Clone, Copy)]
pub struct DaemonOptions {
    /// Detach from the caller's terminal; stderr goes to `/dev/null` once the start has succeeded.
    pub background: bool,
    /// Copy log lines to stderr.
    pub verbose: bool,
    /// The service manager that started it, if one did.
    pub service: Option<Manager>,
    /// Started in the place of the Rubber Duck daemon, by a program that looks where that one would be.
    pub as_rubber_duck: bool,
}

pub(crate) use crate::errors::start::StartError;

/// How a run of the daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to stop and did.
    Stopped,
    /// It was asked to make room for the next one and did.
    Restarting,
    /// Another instance holds the lock; nothing was touched.
    AlreadyRunning,
}

/// Runs the daemon on the process's main thread until it is asked to stop.
pub fn run(options: DaemonOptions) -> Result<Ended, StartError> {
    if options.background {
        quackd_process::become_session_leader();
    }
    system("set limits", quackd_process::harden(Role::Supervisor))?;
    quackd_process::set_process_name("quackd");
    let home = match options.as_rubber_duck {
        true => Home::of_rubber_duck_blocking()?,
        false => Home::from_process_env_blocking()?,
    };
    // Known by its number alone, so before anything else opens one.
    let activated = activated_blocking(&home.socket().path, &|name| std::env::var_os(name))?;
    home.prepare_blocking()?;
    let Some(lock) = cleanup::take_lock_blocking(&home)? else {
        return Ok(Ended::AlreadyRunning);
    };
    let (config, config_file) = crate::health::next_daemon::read_config(&home)?;
    log::check_blocking(&home.log_file())
        .map_err(|reason| StartError::Log { path: home.log_file(), reason })?;
    log::abort_on_panic(home.log_file());
    let (files, found) = remote::load_blocking(&home);
    let is_verbose = options.verbose || found.config.log_to_stderr;
    let (logging, log) = log::start(&home.log_file(), &config.log.level.value, is_verbose);
    tracing::info!(pid = std::process::id(), version = quackd_protocol::VERSION, "daemon boot");
    let remote = RemoteControl::new(files, found);
    let managed = Managed::new(options.service, activated.is_some());
    let given = Given { options, home, activated, managed, remote, log };
    let result = run_locked(given, (config, config_file), &lock);
    match &result {
        Ok(_) => tracing::info!("shutdown complete"),
        Err(error) => tracing::error!(error = %chain(error), "daemon failed to start"),
    }
    drop(logging);
    result
}

/// What is known before the configuration counts.
struct Given {
    options: DaemonOptions,
    home: Home,
    /// The socket, if the service manager keeps it.
    activated: Option<UnixListener>,
    managed: Managed,
    remote: RemoteControl,
    log: LogControl,
}

fn run_locked(
    Given { options, home, activated, managed, remote, log }: Given,
    (config, config_file): (Config, ConfigFile),
    _lock: &InstanceLock,
) -> Result<Ended, StartError> {
    cleanup::retire_run_dir(&home)?;
    let is_ours = activated.is_none();
    let endpoint = config.web_search.endpoint.value.clone();
    let key = Key::from_variables(|name| std::env::var_os(name))?;
    let web_search = WebSearchHealth { has_key: key.is_some(), endpoint: host_of(&endpoint) };
    let egress = Egress::start(EgressConfig::new(endpoint, key))?;
    let (cgroups, no_cgroups) = cleanup::cgroups(&config);
    let (snapshot, saving, health) = load_state::load(&home, web_search, no_cgroups);
    let children = Children {
        exe: system("open our own executable", SelfExe::open())?,
        launcher: launcher(&config),
        max_live: config.worker.max_live.value,
    };
    let socket = home.socket();
    if socket.fallback {
        tracing::info!(path = %socket.path.display(), "socket path is too long; using the fallback");
    }
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
    let parts = Parts {
        home: home.clone(),
        tenure,
        socket: socket.path,
        alias: alias.clone(),
        cgroups: cgroups.clone(),
        activated,
        managed,
        executable: Executable::note_blocking(std::env::args_os().next()),
        interrupted: shutdown_record::load_blocking(&home.interrupted_file()),
        login: load_cached_blocking(&home.login_environment()),
        config,
        config_file,
        egress,
        remote,
        log,
        health,
        metrics: Arc::clone(&metrics),
        spawner,
        ready,
    };
    let (done, actors_done) = sync_channel::<Served>(1);
    let actors = std::thread::Builder::new().name("actors".into()).spawn(move || {
        // The other end is there until the process ends.
        done.send(serve(parts, snapshot, saving)).ok();
    });
    system("start the actors' thread", actors)?;
    let bound = wait_for_start(&started)?;
    if options.background {
        system("let go of stderr", quackd_process::redirect_stderr_to_null())?;
    }
    spawner::serve_blocking(&jobs, &children, &metrics);
    let ended = wait_for_end(&actors_done, bound, is_ours);
    if let Some(alias) = alias.filter(|_| is_ours) {
        alias.remove_blocking();
    }
    // The last one to hold it ends what is in there, and removes it; a thread that hangs leaves that to
    // the next daemon.
    drop(cgroups);
    if let Err(error) = quackd_home::remove_pid_file_blocking(&home) {
        tracing::warn!(%error, "cannot remove the pid file");
    }
    Ok(ended)
}

/// Creates the link for upstream's clients. A failure is only logged, because other clients do not use the link. A
/// daemon that listens there is an error.
fn make_alias(alias: &Alias) -> Result<(), StartError> {
    match alias.make_blocking() {
        Ok(()) => Ok(()),
        Err(error @ BindError::InUse(_)) => Err(error.into()),
        Err(error) => {
            let path = alias.path().display();
            tracing::warn!(%error, %path, "no link to the socket: clients of Rubber Duck do not find this daemon");
            Ok(())
        }
    }
}

/// Waits for the end of the actors' thread, and removes the socket unless the service manager keeps it: that
/// starts the next daemon when somebody comes.
fn wait_for_end(actors_done: &Receiver<Served>, bound: SocketFile, is_ours: bool) -> Ended {
    // A panic on that thread has ended the process already. What it still waits for after this time
    // hangs in the kernel, and ends with the process.
    let served = actors_done.recv_timeout(ACTORS_END).unwrap_or_else(|error| {
        if error == RecvTimeoutError::Timeout {
            tracing::warn!("not waiting for what hangs in the kernel");
        }
        Served::default()
    });
    if let Some(file) = served.made_again.or_else(|| is_ours.then_some(bound)) {
        file.unlink_blocking();
    }
    match served.asked_for {
        Some(Stop::Restart) => Ended::Restarting,
        Some(Stop::Shutdown) | None => Ended::Stopped,
    }
}

/// How the actors' thread ended.
#[derive(Debug, Default)]
struct Served {
    /// The socket's file, if it is another one than at the start.
    made_again: Option<SocketFile>,
    asked_for: Option<Stop>,
}

fn wait_for_start(
    started: &Receiver<Result<SocketFile, StartError>>,
) -> Result<SocketFile, StartError> {
    started.recv().unwrap_or_else(|_| {
        let ended = std::io::Error::other("the thread ended");
        system("start the actors' thread", Err(ended))
    })
}

/// What workers are started through. It gets what commands get: no key, but a PATH.
fn launcher(config: &Config) -> Option<Launcher> {
    let words = config.worker.launcher.value.clone();
    let mut env = command_env::for_tools(std::env::vars_os());
    if let Some((_, path)) = env.iter_mut().find(|(name, _)| name == "PATH") {
        // The launcher runs unconfined: a directory of a workspace must not shadow the system's programs.
        *path = quackd_process::system_first(path);
    }
    (!words.is_empty()).then_some(Launcher { words, env })
}

/// The host of a URL that was checked, for people.
fn host_of(endpoint: &str) -> String {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default().to_owned()
}

/// The actors' thread: one arbiter for everything.
fn serve(parts: Parts, loaded: Snapshot, saving: Saving) -> Served {
    let system = System::with_tokio_rt(|| {
        let built = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .build();
        #[expect(clippy::panic, reason = "no runtime, no daemon: the hook reports it and aborts")]
        built.unwrap_or_else(|error| panic!("cannot build the runtime: {error}"))
    });
    system.block_on(serve_until_stopped(parts, loaded, saving))
}

async fn serve_until_stopped(mut parts: Parts, loaded: Snapshot, saving: Saving) -> Served {
    let (stop, stopped) = mpsc::channel(1);
    // Before the first client can be answered: a signal must not find its default in force.
    let mut asked = StopSignals::new(stopped);
    let bound = match parts.activated.take() {
        Some(listener) => BoundSocket::adopt(listener, &parts.socket),
        None => BoundSocket::bind(&parts.socket),
    };
    let bound = match bound {
        Ok(bound) => bound,
        Err(error) => {
            parts.ready.send(Err(error.into())).ok();
            return Served::default();
        }
    };
    let (ready, tenure) = (parts.ready.clone(), parts.tenure.clone());
    let services = services(parts, stop);
    begin_probing(&services);
    let (sessions, health) = (Rc::clone(&services.sessions), Rc::clone(&services.health));
    let voice = Rc::clone(&services.voice);
    let registry = Registry::new(sessions, health, voice, loaded, saving).start();
    let file = bound.file();
    let listening = actix::spawn(accept_clients(bound, Rc::clone(&services), registry.clone()));
    write_pid_file(&services).await;
    tracing::info!(socket = %services.daemon.socket.display(), "daemon started");
    ready.send(Ok(file)).ok();
    let reporting = actix::spawn(watchdog::report(Rc::clone(&services), registry.clone()));
    services.sessions.children.repo_cleanup.schedule();
    actix::spawn(monitor_loop(Rc::clone(&services)));
    actix::spawn(state_dir_watch::watch(Rc::clone(&services), tenure));
    actix::spawn(memory_pressure::watch(Rc::clone(&services)));
    actix::spawn(memory_limit::watch(Rc::clone(&services)));
    clients::remote::start(&services, &registry);
    metrics_endpoint::start(&services, &registry);
    services.keeping.start(&registry);

    let asked_for = asked.any().await;
    tracing::info!("shutting down");
    services.managed.stopping();
    services.sessions.children.login.stopping().begin();
    shutdown::drain(asked_for, &mut asked, &services, &registry).await;
    reporting.abort();
    listening.abort();
    services.metrics_endpoint.close();
    services.remote.close().await;
    // The service manager kills what is left when this process ends.
    services.sessions.children.login.stopping().end().await;
    services.sessions.children.spawner.stop();
    Served { made_again: services.socket_file.take(), asked_for: Some(asked_for) }
}

/// Starts the probe now, so that the first worker rarely waits for it.
fn begin_probing(services: &Rc<Services>) {
    let services = Rc::clone(services);
    actix::spawn(async move {
        if let Err(error) =
            services.sessions.children.probing.result(&services.sessions.children.spawner).await
        {
            tracing::warn!(%error, "the system was not probed; the next worker's start tries again");
        }
    });
}

/// Monitors the actors' thread. After a pause of the process or the machine, resets the timers of all children.
async fn monitor_loop(services: Rc<Services>) {
    let sessions = &services.sessions;
    loop {
        let is_used = sessions.metrics.clients.get() != 0 || sessions.pool.workers.any();
        if services.pulse.tick(is_used).await {
            sessions.pool.workers.renew();
            sessions.pis.renew();
        }
    }
}

async fn write_pid_file(services: &Services) {
    let home = services.daemon.home.clone();
    let written =
        actix_rt::task::spawn_blocking(move || quackd_home::write_pid_file_blocking(&home)).await;
    // Information for people and for upstream's tools; nothing of ours depends on it.
    if let Ok(Err(error)) = written {
        tracing::warn!(%error, "cannot write the pid file");
    }
}
