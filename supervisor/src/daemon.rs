//! The life of the daemon: what is done in which order at start and at stop.
//!
//! Start: limits, directory, lock, log, metadata, stale socket, actors, bind, pid file. The lock is the
//! authority: whoever holds it may remove a stale socket and nobody else does.
//! Stop: refuse new work, let calls finish up to the grace, end workers side by side, flush the
//! metadata, unlink our socket, remove the pid file. A second signal skips the waiting.

use crate::boot;
use crate::clients::Clients;
use crate::environment;
use crate::errors::chain;
use crate::events::Events;
use crate::health::{Health, WebSearchHealth};
use crate::listener::accept_clients;
use crate::log;
use crate::login::{Captured, Login, LoginParts, load_cached_blocking};
use crate::metrics::Metrics;
use crate::pi::Pis;
use crate::places::Places;
use crate::registry::{Drain, Registry, Saving};
use crate::remote::{self, RemoteControl};
use crate::repositories;
use crate::services::{ConfigFile, Services, now_text};
use crate::spawner::{self, Children, Spawner};
use crate::spills::Spills;
use crate::stop::StopSignals;
use crate::voice::Voice;
use actix::prelude::*;
use quackd_config::{Config, ConfigError, Origin};
use quackd_egress::{Egress, EgressConfig, EgressError, Key};
use quackd_home::{Home, HomeError, InstanceLock};
use quackd_ipc::listener::{BindError, BoundSocket, SocketFile, clear_stale_blocking};
use quackd_process::{CgroupBase, Launcher, Role, SelfExe};
use quackd_protocol::limits::SHUTDOWN_GRACE;
use quackd_protocol::policy::{Policy, PolicyError};
use quackd_store::{Duplicate, Origin as Loaded, Paths, Snapshot, StoreError, Writer};
use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};

/// Threads for what touches a file system: directory look-ups, which a dead mount can hold for ever, and
/// our own directory.
const BLOCKING_THREADS: usize = 32;

/// Those of them that look-ups of clients' directories may hold.
const LOOKUPS: usize = 8;

/// How long the actors' thread may take to end when all is done; a look-up that hangs keeps it.
const ACTORS_END: Duration = Duration::from_millis(500);

/// How long calls that a second signal cuts short have for being answered.
const CUT_SHORT: Duration = Duration::from_millis(300);

/// What the drain may take beyond the grace: ending the workers that are left.
const DRAIN_SLACK: Duration = Duration::from_secs(4);

/// How long a lock that is held may be the leftover of a daemon that was killed, and the pause between
/// two looks at it.
const LOCK_PATIENCE: Duration = Duration::from_millis(250);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// How `quack daemon` was called.
#[derive(Debug, Clone, Copy)]
pub struct DaemonOptions {
    /// Detach from the caller's terminal; stderr goes to `/dev/null` once the start has succeeded.
    pub background: bool,
    /// Copy log lines to stderr.
    pub verbose: bool,
}

/// How a run of the daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to stop and did.
    Stopped,
    /// Another instance holds the lock; nothing was touched.
    AlreadyRunning,
}

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The state directory cannot be used.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configuration asks for a sandbox policy that must not be in force.
    // The reason is part of the text, as with the other errors of the configuration.
    #[error("{origin}: `sandbox.writable` is refused: {reason}")]
    Policy {
        /// Where the value comes from: the file and the line.
        origin: Origin,
        /// What is wrong with it.
        reason: PolicyError,
    },
    /// Nor where web searches shall go.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The socket cannot be bound.
    #[error(transparent)]
    Socket(#[from] BindError),
    /// The system refused something else.
    #[error("cannot {step}")]
    System {
        /// What was tried.
        step: &'static str,
        /// The refusal.
        source: std::io::Error,
    },
}

fn system<T>(step: &'static str, result: std::io::Result<T>) -> Result<T, StartError> {
    result.map_err(|source| StartError::System { step, source })
}

/// Runs the daemon on the process's main thread until it is asked to stop.
pub fn run(options: DaemonOptions) -> Result<Ended, StartError> {
    if options.background {
        quackd_process::become_session_leader();
    }
    system("set limits", quackd_process::harden(Role::Supervisor))?;
    quackd_process::set_process_name("quackd");
    let home = Home::from_process_env_blocking()?;
    home.prepare_blocking()?;
    let Some(lock) = take_lock(&home)? else {
        return Ok(Ended::AlreadyRunning);
    };
    let (config, config_file) = read_config(&home)?;
    log::abort_on_panic(home.log_file());
    let (files, found) = remote::load_blocking(&home);
    let is_verbose = options.verbose || found.config.log_to_stderr;
    let logging = log::start(&home.log_file(), &config.log.level.value, is_verbose);
    tracing::info!(pid = std::process::id(), version = quackd_protocol::VERSION, "daemon boot");
    let remote = RemoteControl::new(files, found);
    let result = run_locked(options, home, (config, config_file), remote, &lock);
    match &result {
        Ok(_) => tracing::info!("shutdown complete"),
        Err(error) => tracing::error!(error = %chain(error), "daemon failed to start"),
    }
    drop(logging);
    result
}

/// Takes the instance lock. A daemon that was killed while it started a child leaves a copy of the lock in
/// that child until it has executed its program: some milliseconds, which are waited for.
fn take_lock(home: &Home) -> Result<Option<InstanceLock>, HomeError> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        let lock = quackd_home::lock_blocking(home)?;
        if lock.is_some() || until <= Instant::now() {
            return Ok(lock);
        }
        // Nothing runs in this process yet that could be held up.
        std::thread::park_timeout(LOCK_PAUSE);
    }
}

fn run_locked(
    options: DaemonOptions,
    home: Home,
    (config, config_file): (Config, ConfigFile),
    remote: RemoteControl,
    _lock: &InstanceLock,
) -> Result<Ended, StartError> {
    boot::retire_run_dir(&home)?;
    let endpoint = config.web_search.endpoint.value.clone();
    let key = Key::from_variables(|name| std::env::var_os(name))?;
    let web_search = WebSearchHealth { has_key: key.is_some(), endpoint: host_of(&endpoint) };
    let egress = Egress::start(EgressConfig::new(endpoint, key))?;
    let (snapshot, saving, health) = load(&home, web_search);
    let children = Children {
        exe: system("open our own executable", SelfExe::open())?,
        launcher: launcher(&config),
        max_live: config.worker.max_live.value,
    };
    let socket = home.socket();
    if socket.fallback {
        tracing::info!(path = %socket.path.display(), "socket path is too long; using the fallback");
    }
    clear_stale_blocking(&socket.path)?;
    let metrics = Arc::<Metrics>::default();
    let (cgroups, no_cgroups) = boot::cgroups(&config);
    let (spawner, jobs) = spawner::spawner();
    let (ready, started) = sync_channel(1);
    let parts = Parts {
        home: home.clone(),
        socket: socket.path,
        cgroups: cgroups.clone(),
        no_cgroups,
        login: load_cached_blocking(&home.login_environment()),
        config,
        config_file,
        egress,
        remote,
        health,
        metrics: Arc::clone(&metrics),
        spawner,
        ready,
    };
    let (done, actors_done) = sync_channel::<Option<SocketFile>>(1);
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
    // A panic on that thread has ended the process already. What it still waits for after this time
    // hangs in the kernel, and ends with the process.
    let file = actors_done.recv_timeout(ACTORS_END);
    if file == Err(RecvTimeoutError::Timeout) {
        tracing::warn!("not waiting for what hangs in the kernel");
    }
    file.ok().flatten().unwrap_or(bound).unlink_blocking();
    // The last one to hold it ends what is in there, and removes it; a thread that hangs leaves that to
    // the next daemon.
    drop(cgroups);
    if let Err(error) = quackd_home::remove_pid_file_blocking(&home) {
        tracing::warn!(%error, "cannot remove the pid file");
    }
    Ok(Ended::Stopped)
}

fn wait_for_start(
    started: &Receiver<Result<SocketFile, StartError>>,
) -> Result<SocketFile, StartError> {
    started.recv().unwrap_or_else(|_| {
        let ended = std::io::Error::other("the thread ended");
        system("start the actors' thread", Err(ended))
    })
}

/// Reads the configuration. A daemon that cannot do what it says does not start.
fn read_config(home: &Home) -> Result<(Config, ConfigFile), StartError> {
    // What is not UTF-8 is no value of any key, and is said to be wrong.
    let variable =
        |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let (path, is_named) = quackd_config::locate(home.config(), &variable)?;
    // Before it is read: a change that comes between is then seen as one.
    let modified = path.metadata().and_then(|found| found.modified()).ok();
    let config = quackd_config::load_blocking(&path, is_named, &variable)?;
    let policy = Policy::resolve([config.sandbox.patch()]);
    if let Err(reason) = policy.validate(&user_home(), home.dir()) {
        // What can be wrong with the other values was refused with the file.
        let origin = config.sandbox.writable.origin;
        return Err(StartError::Policy { origin, reason });
    }
    Ok((config, ConfigFile { path, modified }))
}

/// The user's home directory, which no worker may write as a whole.
fn user_home() -> PathBuf {
    std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

/// What workers are started through. It gets what commands get: no key, but a PATH.
fn launcher(config: &Config) -> Option<Launcher> {
    let words = config.worker.launcher.value.clone();
    let env = environment::for_tools(std::env::vars_os());
    (!words.is_empty()).then_some(Launcher { words, env })
}

/// The host of a URL that was checked, for people.
fn host_of(endpoint: &str) -> String {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default().to_owned()
}

/// Loads metadata and state. A file that can neither be used nor be set aside, for example one of a newer
/// version, is left alone: the daemon serves without saving, and says why to whoever changes something.
fn load(home: &Home, web_search: WebSearchHealth) -> (Snapshot, Saving, Health) {
    let paths = Paths { metadata: home.metadata(), state: home.state_file() };
    let metadata = quackd_store::load_blocking(&paths.metadata)
        .map(|loaded| (loaded.metadata, loaded.origin, loaded.duplicates));
    let state = quackd_store::load_state_blocking(&paths.state)
        .map(|loaded| (loaded.state, loaded.origin, loaded.duplicates));
    let (metadata, metadata_origin) = said("metadata.json", metadata);
    let (mut state, state_origin) = said("quackd-state.json", state);
    // What is ours about a session that does not exist any more. If the sessions are not all there, what
    // is said of them is kept: somebody may put the file back.
    if matches!(metadata_origin, Ok(Loaded::File | Loaded::Fresh)) {
        let known: HashSet<_> = metadata.sessions.iter().map(|session| &session.id).collect();
        state.sessions.retain(|id, _| known.contains(id));
        let known: HashSet<_> = metadata.workspaces.iter().map(|workspace| &workspace.id).collect();
        state.workspaces.retain(|id, _| known.contains(id));
    }
    let snapshot = Snapshot { metadata: Arc::new(metadata), state: Arc::new(state) };
    let why =
        [&metadata_origin, &state_origin].into_iter().find_map(|loaded| loaded.as_ref().err());
    let saving = match why {
        Some(why) => Saving::Off { why: why.clone() },
        None => match Writer::start(paths, snapshot.clone()) {
            Ok(writer) => Saving::To(writer),
            Err(error) => Saving::Off { why: chain(&error) },
        },
    };
    let health = Health {
        metadata: metadata_origin,
        state: state_origin,
        save_failed: RefCell::new(None),
        providers: providers(|name| std::env::var_os(name)),
        web_search,
    };
    (snapshot, saving, health)
}

/// Says in the log what a loaded file is worth.
fn said<T: Default>(
    file: &str,
    loaded: Result<(T, Loaded, Vec<Duplicate>), StoreError>,
) -> (T, Result<Loaded, String>) {
    let (content, origin, duplicates) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            let why = chain(&error);
            tracing::error!(file, why, "read-only: nothing will be saved");
            return (T::default(), Err(why));
        }
    };
    if !matches!(origin, Loaded::Fresh | Loaded::File) {
        tracing::error!(?origin, "{file} was recovered");
    }
    for duplicate in &duplicates {
        tracing::warn!(file, %duplicate, "left out an entry");
    }
    (content, Ok(origin))
}

/// The model providers for which there is a key. Only that there is one is looked at.
fn providers(variable: impl Fn(&str) -> Option<OsString>) -> Vec<&'static str> {
    [("OPENAI_API_KEY", "openai"), ("ANTHROPIC_API_KEY", "anthropic")]
        .into_iter()
        .filter(|(name, _)| variable(name).is_some_and(|key| !key.is_empty()))
        .map(|(_, provider)| provider)
        .collect()
}

/// What moves to the actors' thread.
struct Parts {
    home: Home,
    socket: PathBuf,
    config: Config,
    config_file: ConfigFile,
    cgroups: Option<Arc<CgroupBase>>,
    no_cgroups: Option<String>,
    login: Option<Captured>,
    egress: Egress,
    remote: RemoteControl,
    health: Health,
    metrics: Arc<Metrics>,
    spawner: Spawner,
    ready: SyncSender<Result<SocketFile, StartError>>,
}

/// The actors' thread: one arbiter for everything. Gives the socket's file if it is another one now.
fn serve(parts: Parts, loaded: Snapshot, saving: Saving) -> Option<SocketFile> {
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

async fn serve_until_stopped(parts: Parts, loaded: Snapshot, saving: Saving) -> Option<SocketFile> {
    let (stop, stopped) = mpsc::channel(1);
    // Before the first client can be answered: a signal must not find its default in force.
    let mut asked = StopSignals::new(stopped);
    let bound = match BoundSocket::bind(&parts.socket) {
        Ok(bound) => bound,
        Err(error) => {
            parts.ready.send(Err(error.into())).ok();
            return None;
        }
    };
    let ready = parts.ready.clone();
    let services = services(parts, stop);
    let registry = Registry::new(Rc::clone(&services), loaded, saving).start();
    let file = bound.file();
    let listening = actix::spawn(accept_clients(bound, Rc::clone(&services), registry.clone()));
    write_pid_file(&services).await;
    tracing::info!(socket = %services.socket.display(), "daemon started");
    ready.send(Ok(file)).ok();
    repositories::clean_soon(&services);
    remote::start(&services, &registry);

    asked.any().await;
    tracing::info!("shutting down");
    let drain = Drain { until: Instant::now() + SHUTDOWN_GRACE };
    tokio::select! {
        drained = registry.send(drain).timeout(SHUTDOWN_GRACE + DRAIN_SLACK) => {
            if drained.is_err() {
                tracing::error!("workers did not end in time; they end with the daemon");
            }
        }
        () = asked.signal() => {
            tracing::warn!("second signal: not waiting for calls");
            let now = Drain { until: Instant::now() };
            // They are told if that is quick; the stop goes on in any case.
            registry.send(now).timeout(CUT_SHORT).await.ok();
        }
    }
    listening.abort();
    services.remote.close().await;
    services.spawner.stop();
    services.socket_file.take()
}

/// What connections, methods and handles share.
fn services(parts: Parts, stop: mpsc::Sender<()>) -> Rc<Services> {
    let login = Login::start(LoginParts {
        login_shell: parts.config.environment.login_shell.value,
        extra: parts.config.tools.env.value.clone(),
        for_pi: parts.config.pi.env.value.clone(),
        variables: std::env::vars_os().collect(),
        cached: parts.login,
        cache: parts.home.login_environment(),
        run_dir: parts.home.run_dir(),
        spawner: parts.spawner.clone(),
    });
    let clients = Rc::<Clients>::default();
    let events = Rc::new(Events::new(format!("{}-{}", now_text(), std::process::id())));
    Rc::new(Services {
        user_home: user_home(),
        started_in: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
        places: Places::new(parts.config.limits.commands.value, parts.config.limits.jobs.value),
        spills: Spills::new(
            parts.home.run_dir(),
            u64::try_from(parts.config.limits.spill_mb.value)
                .unwrap_or(u64::MAX)
                .saturating_mul(1024 * 1024),
            Arc::clone(&parts.metrics),
        ),
        home: parts.home,
        socket: parts.socket,
        socket_file: RefCell::new(None),
        started: Instant::now(),
        started_at: now_text(),
        login,
        config: parts.config,
        config_file: parts.config_file,
        voice: Voice::new(Rc::clone(&clients), Rc::clone(&events)),
        events,
        clients,
        pis: Pis::default(),
        egress: parts.egress,
        remote: parts.remote,
        cgroups: parts.cgroups,
        no_cgroups: parts.no_cgroups,
        probe: RefCell::new(None),
        health: parts.health,
        metrics: parts.metrics,
        lookups: Arc::new(Semaphore::new(LOOKUPS)),
        spawner: parts.spawner,
        stop,
    })
}

async fn write_pid_file(services: &Services) {
    let home = services.home.clone();
    let written =
        actix_rt::task::spawn_blocking(move || quackd_home::write_pid_file_blocking(&home)).await;
    // Information for people and for upstream's tools; nothing of ours depends on it.
    if let Ok(Err(error)) = written {
        tracing::warn!(%error, "cannot write the pid file");
    }
}
