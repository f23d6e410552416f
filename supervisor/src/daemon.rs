//! The life of the daemon: what is done in which order at start and at stop.
//!
//! Start: limits, directory, lock, log, metadata, stale socket, actors, bind, pid file. The lock is the
//! authority: whoever holds it may remove a stale socket and nobody else does.
//! Stop: refuse new work, let calls finish up to the grace, end workers side by side, flush the
//! metadata, unlink our socket, remove the pid file. A second signal skips the waiting.

use crate::environment;
use crate::listener::accept_clients;
use crate::log;
use crate::metrics::Metrics;
use crate::registry::{Drain, Registry, Saving};
use crate::services::{Services, now_text};
use crate::spawner::{self, Spawner};
use actix::prelude::*;
use quackd_home::{Home, HomeError, InstanceLock};
use quackd_ipc::listener::{BindError, BoundSocket, SocketFile, clear_stale_blocking};
use quackd_process::{Role, SelfExe};
use quackd_protocol::limits::SHUTDOWN_GRACE;
use quackd_protocol::metadata::Metadata;
use quackd_store::{Origin, Writer};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
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
    let Some(lock) = quackd_home::lock_blocking(&home)? else {
        return Ok(Ended::AlreadyRunning);
    };
    log::abort_on_panic(home.log_file());
    let logging = log::start(&home.log_file(), options.verbose);
    tracing::info!(pid = std::process::id(), version = quackd_protocol::VERSION, "daemon boot");
    let result = run_locked(options, home, &lock);
    match &result {
        Ok(_) => tracing::info!("shutdown complete"),
        Err(error) => tracing::error!(error = %chain(error), "daemon failed to start"),
    }
    drop(logging);
    result
}

fn run_locked(
    options: DaemonOptions,
    home: Home,
    _lock: &InstanceLock,
) -> Result<Ended, StartError> {
    retire_run_dir(&home)?;
    let (metadata, saving) = load(&home);
    let exe = system("open our own executable", SelfExe::open())?;
    let socket = home.socket();
    if socket.fallback {
        tracing::info!(path = %socket.path.display(), "socket path is too long; using the fallback");
    }
    clear_stale_blocking(&socket.path)?;
    let metrics = Arc::<Metrics>::default();
    let (spawner, jobs) = spawner::spawner();
    let (ready, started) = sync_channel(1);
    let parts = Parts {
        home: home.clone(),
        socket: socket.path,
        metadata,
        saving,
        metrics: Arc::clone(&metrics),
        spawner,
        ready,
    };
    let (done, actors_done) = sync_channel::<()>(1);
    let actors = std::thread::Builder::new().name("actors".into()).spawn(move || {
        let _done = done;
        serve(parts);
    });
    system("start the actors' thread", actors)?;
    let bound = wait_for_start(&started)?;
    if options.background {
        system("let go of stderr", quackd_process::redirect_stderr_to_null())?;
    }
    spawner::serve_blocking(&jobs, &exe, &metrics);
    // A panic on that thread has ended the process already. What it still waits for after this time
    // hangs in the kernel, and ends with the process.
    if actors_done.recv_timeout(ACTORS_END) == Err(RecvTimeoutError::Timeout) {
        tracing::warn!("not waiting for what hangs in the kernel");
    }
    bound.unlink_blocking();
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

/// Puts aside what sessions of the last run spilled, and deletes it while the daemon serves already.
/// Workers of a daemon that was killed may still be ending: what they write goes with it.
fn retire_run_dir(home: &Home) -> Result<(), StartError> {
    const RETIRED: &str = "run.old-";
    let retired = home.dir().join(format!("{RETIRED}{}", std::process::id()));
    #[expect(clippy::disallowed_methods, reason = "nothing durable: if it fails, old spills stay")]
    if let Err(error) = std::fs::rename(home.run_dir(), retired) {
        tracing::warn!(%error, "cannot put the old run directory aside");
    }
    home.prepare_blocking()?;
    let dir = home.dir().to_path_buf();
    let delete = std::thread::Builder::new().name("retire".into()).spawn(move || {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        for entry in entries.filter(|e| e.file_name().to_string_lossy().starts_with(RETIRED)) {
            if let Err(error) = std::fs::remove_dir_all(entry.path()) {
                tracing::warn!(%error, "cannot delete an old run directory");
            }
        }
    });
    // Without a thread the next start deletes it.
    delete.map(drop).or(Ok(()))
}

/// Loads the metadata. A file that can neither be used nor be set aside, for example one of a newer
/// version, is left alone: the daemon serves without saving, and says why to whoever changes something.
fn load(home: &Home) -> (Metadata, Saving) {
    let path = home.metadata();
    let loaded = match quackd_store::load_blocking(&path) {
        Ok(loaded) => loaded,
        Err(error) => {
            let why = chain(&error);
            tracing::error!(why, "metadata is read-only");
            return (Metadata::default(), Saving::Off { why });
        }
    };
    if !matches!(loaded.origin, Origin::Fresh | Origin::File) {
        tracing::error!(origin = ?loaded.origin, "metadata was recovered");
    }
    for duplicate in &loaded.duplicates {
        tracing::warn!(?duplicate, "left out an entry of the metadata");
    }
    let saving = match Writer::start(path) {
        Ok(writer) => Saving::To(writer),
        Err(error) => Saving::Off { why: chain(&error) },
    };
    (loaded.metadata, saving)
}

/// An error with its causes, for the log.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// What moves to the actors' thread.
struct Parts {
    home: Home,
    socket: PathBuf,
    metadata: Metadata,
    saving: Saving,
    metrics: Arc<Metrics>,
    spawner: Spawner,
    ready: SyncSender<Result<SocketFile, StartError>>,
}

/// The actors' thread: one arbiter for everything.
fn serve(parts: Parts) {
    let system = System::with_tokio_rt(|| {
        let built = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .build();
        #[expect(clippy::panic, reason = "no runtime, no daemon: the hook reports it and aborts")]
        built.unwrap_or_else(|error| panic!("cannot build the runtime: {error}"))
    });
    system.block_on(serve_until_stopped(parts));
}

async fn serve_until_stopped(parts: Parts) {
    let Parts { home, socket, metadata, saving, metrics, spawner, ready } = parts;
    let (stop, stopped) = mpsc::channel(1);
    // Before the first client can be answered: a signal must not find its default in force.
    let mut asked = StopSignals::new(stopped);
    let bound = match BoundSocket::bind(&socket) {
        Ok(bound) => bound,
        Err(error) => {
            ready.send(Err(error.into())).ok();
            return;
        }
    };
    let services = Rc::new(Services {
        started_in: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
        home,
        socket,
        started: Instant::now(),
        started_at: now_text(),
        tool_env: environment::for_tools(std::env::vars_os()),
        metrics,
        lookups: Arc::new(Semaphore::new(LOOKUPS)),
        spawner: spawner.clone(),
        stop,
    });
    let registry = Registry::new(Rc::clone(&services), metadata, saving).start();
    let file = bound.file();
    let listening = actix::spawn(accept_clients(bound, Rc::clone(&services), registry.clone()));
    write_pid_file(&services).await;
    tracing::info!(socket = %services.socket.display(), "daemon started");
    ready.send(Ok(file)).ok();

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
    spawner.stop();
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

/// What asks the daemon to stop: a signal, or `quack.shutdown`.
struct StopSignals {
    signals: Vec<tokio::signal::unix::Signal>,
    asked: mpsc::Receiver<()>,
}

impl StopSignals {
    fn new(asked: mpsc::Receiver<()>) -> Self {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let signals = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
        Self { signals, asked }
    }

    /// Waits for a signal or for `quack.shutdown`.
    async fn any(&mut self) {
        let Self { signals, asked } = self;
        tokio::select! {
            () = any_of(signals) => {}
            _ = asked.recv() => {}
        }
    }

    /// Waits for a signal: a client cannot cut short what another one waits for.
    async fn signal(&mut self) {
        any_of(&mut self.signals).await;
    }
}

async fn any_of(signals: &mut [tokio::signal::unix::Signal]) {
    let signals = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
    futures_util::future::select_all(signals).await;
}
