//! The login environment: captured from the user's login shell when the daemon starts, cached for the next daemon, and
//! merged into the environment of commands. Read by each worker at its start.
//!
//! | at the start | the first workers | the capture starts |
//! |---|---|---|
//! | an earlier daemon cached a result | use it at once | [`CAPTURE_DELAY`] later |
//! | no cached result, started from a shell (`SHLVL`) | use the daemon's own variables, which that shell set |
//! [`CAPTURE_DELAY`] later |
//! | no cached result, started by a service manager | wait for the result, at most [`FIRST_WORKER_TIMEOUT`] from the start | at
//! once |
//! | switched off | use the daemon's own variables | never |
//!
//! A Pi that starts without a key in the daemon's own variables triggers the capture at once.
//!
//! After a failure the current environment stays in use, and `doctor` shows the reason. Running workers keep the
//! environment of their start. If that was nearly empty, or if the user requested a new capture, each worker is
//! replaced at its next call.

mod cache;
mod capture;

pub(crate) use cache::{CapturedEnv, load_cached_blocking};
pub(crate) use capture::{CaptureError, OneShotReply, ask, converse, receive, send};

use crate::children::command_env::{self, EnvAllowList, Variables};
use crate::children::pi_env as for_pi;
use crate::children::spawner::Spawner;
use crate::children::{Deaths, OneShot};
use crate::clock::now_text;
use capture::{Stopping, captured};
use quackd_protocol::environment::{
    CAPTURE_DEADLINE, CaptureRequest, LoginEnvironment, LoginSource, LoginState,
    ToEnvironmentWorker,
};
use quackd_supervision::ENVIRONMENT_WORKER;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

/// Time after the daemon's start during which a first worker waits for the login shell.
const FIRST_WORKER_TIMEOUT: Duration = Duration::from_secs(3);

/// Delay before a capture that no caller waits for: the first calls of a new daemon have priority over the user's
/// startup files. A waiting caller ends the delay.
const CAPTURE_DELAY: Duration = Duration::from_secs(2);

/// Variable with the socket of the user's ssh agent.
const SSH_AGENT_VARIABLE: &str = "SSH_AUTH_SOCK";

/// Settings and dependencies of [`LoginEnv`].
#[derive(Debug)]
pub(crate) struct LoginEnvInputs {
    /// Whether the login environment is captured at all.
    pub(crate) login_shell: bool,
    /// Names from the configuration.
    pub(crate) extra: Vec<String>,
    /// All of the daemon's own variables.
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// Names of further variables for Pi.
    pub(crate) for_pi: Vec<String>,
    /// Result of [`load_cached_blocking`].
    pub(crate) cached: Option<CapturedEnv>,
    /// Path of the cache file.
    pub(crate) cache: PathBuf,
    /// An existing private directory.
    pub(crate) run_dir: PathBuf,
    /// Starts the capture process.
    pub(crate) spawner: Spawner,
    /// Records failed captures.
    pub(crate) deaths: Rc<Deaths>,
}

/// Returns the directories that sessions may write, and `None` if the daemon is stopping. This folder does not know the
/// sessions.
pub(crate) struct WritableSource(pub(crate) Box<dyn Fn() -> Listing>);

/// See [`WritableSource`].
pub(crate) type Listing = Pin<Box<dyn Future<Output = Option<Vec<PathBuf>>>>>;

impl std::fmt::Debug for WritableSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WritableSource").finish_non_exhaustive()
    }
}

/// The login environment. One per daemon, behind an `Rc` on the actors' thread.
#[derive(Debug)]
pub(crate) struct LoginEnv {
    login_shell: bool,
    allowed: EnvAllowList,
    /// Names of further variables for Pi.
    for_pi: Vec<String>,
    own: Variables,
    /// Socket of the user's ssh agent in the daemon's own variables. Commands do not get it.
    own_agent: Option<String>,
    cache: PathBuf,
    run_dir: PathBuf,
    spawner: Spawner,
    one_shot: OneShot,
    writable: OnceCell<WritableSource>,
    stopping: Stopping,
    /// Ends the delay of [`CAPTURE_DELAY`]: a caller waits for the result.
    skip_delay: Notify,
    /// Whether a shell has started the daemon, so that its PATH is the user's.
    is_from_shell: bool,
    /// Until this time a worker waits for the first result. `None` if it need not wait.
    first_worker_deadline: Option<Instant>,
    phase: watch::Sender<Phase>,
    /// The user requested a capture whose result applies at once.
    is_requested: Cell<bool>,
    known: RefCell<LoginSnapshot>,
    /// Variables that clients passed on from their shells, by name. Never saved, and stronger than all others: a user
    /// who sets a key expects that the next command uses it.
    of_shell: RefCell<BTreeMap<String, String>>,
}

/// State of the capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    /// A capture is running, or starts after [`CAPTURE_DELAY`].
    Capturing,
    /// The result is in use and is being saved.
    Saving,
}

#[derive(Debug)]
struct LoginSnapshot {
    source: LoginSource,
    captured: Option<CapturedEnv>,
    error: Option<String>,
    /// INVARIANT: `own` and `captured`, merged.
    merged: Variables,
    /// Variables of the last result for Pi, with keys. Kept in memory only.
    for_pi: Variables,
    /// Socket of the user's ssh agent in the last result. Kept in memory only.
    agent: Option<String>,
    /// Value of [`LoginEnv::version`].
    version: u64,
}

impl LoginEnv {
    /// Creates it and schedules a capture, unless that is switched off. Returns at once.
    pub(crate) fn start(parts: LoginEnvInputs) -> Rc<Self> {
        let login = Rc::new(Self::new(parts));
        if login.login_shell {
            login.begin(if login.first_worker_deadline.is_some() {
                Duration::ZERO
            } else {
                CAPTURE_DELAY
            });
        }
        login
    }

    fn new(parts: LoginEnvInputs) -> Self {
        let (allowed, refused) = EnvAllowList::new(parts.extra);
        for name in refused {
            tracing::warn!(name, "variable is never passed on to commands");
        }

        let has_shell = parts.variables.iter().any(|(name, _)| name == "SHLVL");
        let own_agent = parts.variables.iter().find(|(name, _)| name == SSH_AGENT_VARIABLE);
        let own_agent = own_agent.and_then(|(_, value)| value.clone().into_string().ok());
        let own = allowed.own(parts.variables.into_iter());

        let cached = parts.cached.filter(|_| parts.login_shell).and_then(|kept| {
            // The allow-list may have become shorter since the file was written.
            CapturedEnv::new(kept.environment, kept.captured_at, &allowed)
        });

        let source = match &cached {
            _ if !parts.login_shell => LoginSource::Off,
            Some(_) => LoginSource::Cached,
            None => LoginSource::None,
        };
        if let Some(kept) = &cached {
            let captured_at = &kept.captured_at;
            tracing::info!(captured_at, "using the cached login environment");
        }

        let must_wait = source == LoginSource::None && !has_shell;
        let merged = merge(&own, cached.as_ref());

        Self {
            login_shell: parts.login_shell,
            allowed,
            for_pi: parts.for_pi,
            own,
            own_agent: own_agent.filter(|socket| !socket.is_empty()),
            cache: parts.cache,
            run_dir: parts.run_dir,
            spawner: parts.spawner,
            one_shot: OneShot::new(&ENVIRONMENT_WORKER, parts.deaths),
            writable: OnceCell::new(),
            stopping: Stopping::default(),
            skip_delay: Notify::new(),
            is_from_shell: has_shell,
            first_worker_deadline: must_wait.then(|| Instant::now() + FIRST_WORKER_TIMEOUT),
            phase: watch::Sender::new(Phase::Idle),
            is_requested: Cell::new(false),
            known: RefCell::new(LoginSnapshot {
                source,
                captured: cached,
                error: None,
                merged,
                for_pi: Variables::new(),
                agent: None,
                version: 1,
            }),
            of_shell: RefCell::default(),
        }
    }

    /// Adds variables with keys from the shell of a client, until the daemon stops.
    pub(crate) fn add_of_shell(&self, variables: BTreeMap<String, String>) {
        self.of_shell.borrow_mut().extend(variables);
    }

    /// Returns the names of the variables from the shells of clients that have a value.
    pub(crate) fn names_of_shell(&self) -> Vec<String> {
        let of_shell = self.of_shell.borrow();
        let set = of_shell.iter().filter(|(_, value)| !value.trim().is_empty());
        set.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the environment for the commands of a new worker. Waits for the first capture only if the daemon has
    /// nothing but a service manager's variables. Waits at most for `limit`, and until [`FIRST_WORKER_TIMEOUT`] after
    /// the start.
    pub(crate) async fn env_for_worker(&self, limit: Duration) -> Variables {
        if let Some(first_worker_deadline) = self.first_worker_deadline {
            let until = first_worker_deadline.min(Instant::now() + limit);
            let mut phase = self.phase.subscribe();
            // After a timeout, the environment known so far is used.
            timeout_at(until, phase.wait_for(|phase| *phase != Phase::Capturing)).await.ok();
        }
        self.known.borrow().merged.clone()
    }

    /// Whether a shell has started the daemon.
    pub(crate) fn is_from_shell(&self) -> bool {
        self.is_from_shell
    }

    /// Returns the variables of the login shell and of clients' shells for Pi. Waits at most for `limit` until this daemon
    /// has captured the login shell's, because the cache contains no keys.
    pub(crate) async fn env_for_pi(&self, limit: Duration) -> Variables {
        let has_any = !self.names_of_shell().is_empty();
        self.captured(if has_any { Duration::ZERO } else { limit }).await;
        let mut variables = self.known.borrow().for_pi.clone();
        let of_shell = self.of_shell.borrow();
        variables.extend(of_shell.iter().map(|(name, value)| (name.clone(), value.clone())));
        variables
    }

    /// Returns the socket of the user's ssh agent: that of the daemon's own variables, or else that of the login shell. A
    /// login shell may start an agent that ends with it.
    pub(crate) fn agent_socket(&self) -> Option<String> {
        self.own_agent.clone().or_else(|| self.known.borrow().agent.clone())
    }

    /// Waits at most for `limit` until this daemon has captured the environment.
    pub(crate) async fn captured(&self, limit: Duration) {
        let is_known = matches!(self.known.borrow().source, LoginSource::Fresh | LoginSource::Off);
        if !is_known && !limit.is_zero() {
            self.skip_delay.notify_one();
            let mut phase = self.phase.subscribe();
            let asked = phase.wait_for(|phase| *phase != Phase::Capturing);
            // After a timeout, the variables known so far are used.
            timeout_at(Instant::now() + limit, asked).await.ok();
        }
    }

    /// Captures the environment again, or waits for the running capture, and returns the result. Does nothing if
    /// captures are switched off. Takes at most about as long as two captures.
    pub(crate) async fn refresh(self: &Rc<Self>) -> LoginState {
        if self.login_shell {
            self.is_requested.set(true);
            self.begin(Duration::ZERO);
            self.skip_delay.notify_one();
            // The sender is in `self`, so waiting cannot fail.
            self.phase.subscribe().wait_for(|phase| *phase == Phase::Idle).await.ok();
        }
        self.state()
    }

    /// Changes if running workers must be replaced because of their environment.
    pub(crate) fn version(&self) -> u64 {
        self.known.borrow().version
    }

    /// Record of the capture processes.
    pub(crate) fn one_shot(&self) -> &OneShot {
        &self.one_shot
    }

    /// Cancels captures at shutdown.
    pub(crate) fn stopping(&self) -> &Stopping {
        &self.stopping
    }

    /// State for `doctor`.
    pub(crate) fn state(&self) -> LoginState {
        let known = self.known.borrow();
        let captured = known.captured.as_ref();
        let environment = captured.map(|captured| &captured.environment);
        let path = command_env::of(&known.merged, "PATH");
        LoginState {
            source: known.source,
            refreshing: *self.phase.borrow() == Phase::Capturing,
            shell: environment.map(|environment| environment.shell.clone()),
            interactive: environment.map(|environment| environment.interactive),
            captured_at: captured.map(|captured| captured.captured_at.clone()),
            took_ms: environment.map(|environment| environment.took_ms),
            confined: environment.map(|environment| environment.confined),
            error: known.error.clone(),
            path_entries: path.split(':').map(str::to_owned).collect(),
        }
    }

    /// Starts a capture after `delay`, unless one is running.
    fn begin(self: &Rc<Self>, delay: Duration) {
        let is_idle = |phase: &mut Phase| {
            let is_idle = *phase == Phase::Idle;
            *phase = if is_idle { Phase::Capturing } else { *phase };
            is_idle
        };
        if !self.phase.send_if_modified(is_idle) {
            return;
        }

        let login = Rc::clone(self);
        actix::spawn(async move {
            // `notify_one` before the wait also ends it.
            timeout_at(Instant::now() + delay, login.skip_delay.notified()).await.ok();
            let (one_shot, spawner) = (&login.one_shot, &login.spawner);
            let answer = match login.writable().await {
                Some(writable) => {
                    let request = ToEnvironmentWorker::Capture(login.request(&writable));
                    ask(one_shot, spawner, request, &login.stopping).await.and_then(captured)
                }
                None => Err(CaptureError::Stopping),
            };

            if let Some(captured) = login.settle(answer) {
                login.phase.send_replace(Phase::Saving);
                login.save(captured).await;
            }
            login.phase.send_replace(Phase::Idle);
        });
    }

    /// Sets the source of the directories that sessions may write. Without it no shell is started.
    pub(crate) fn set_writable(&self, source: WritableSource) {
        // Set once: later calls change nothing.
        drop(self.writable.set(source));
    }

    /// Directories that sessions may write. `None` if the daemon is stopping.
    pub(crate) async fn writable(&self) -> Option<Vec<PathBuf>> {
        self.writable.get()?.0().await
    }

    fn request(&self, writable: &[PathBuf]) -> CaptureRequest {
        let untrusted = writable.iter().map(|path| path.to_string_lossy().into_owned());
        CaptureRequest {
            untrusted: untrusted.collect(),
            run_dir: self.run_dir.display().to_string(),
            base: command_env::for_login_shell(&self.own),
            names: self.names(),
            prefixes: owned(for_pi::PREFIXES),
            deadline_ms: u64::try_from(CAPTURE_DEADLINE.as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn names(&self) -> Vec<String> {
        let agent = owned(&[SSH_AGENT_VARIABLE]);
        [self.allowed.names(), owned(for_pi::NAMES), self.for_pi.clone(), agent].concat()
    }

    /// Applies the result of a capture. Returns the part to cache for the next daemon.
    fn settle(&self, answer: Result<LoginEnvironment, CaptureError>) -> Option<CapturedEnv> {
        let (mut for_pi, mut agent) = (Variables::new(), None);
        let captured = answer.and_then(|environment| {
            let socket = command_env::of(&environment.variables, SSH_AGENT_VARIABLE);
            agent = Some(socket).filter(|socket| !socket.is_empty()).map(str::to_owned);
            for_pi = for_pi::of_login_shell(&environment.variables, &self.for_pi);
            CapturedEnv::new(environment, now_text(), &self.allowed)
                .ok_or_else(|| CaptureError::Malformed("it is too large".to_owned()))
        });

        let mut known = self.known.borrow_mut();
        match captured {
            Ok(captured) => {
                let LoginEnvironment { shell, interactive, took_ms, .. } = &captured.environment;
                tracing::info!(shell, interactive, took_ms, "login environment captured");

                let merged = merge(&self.own, Some(&captured));
                // Replace workers that started with nearly nothing, or whose user requested a capture. Other workers
                // keep their environment, which is only slightly older.
                let was_missing = self.first_worker_deadline.is_some() && known.captured.is_none();
                let is_other = known.merged != merged && (was_missing || self.is_requested.take());
                // Workers that started without the socket of an agent serve none.
                let is_agent_new =
                    self.own_agent.is_none() && known.agent.is_none() && agent.is_some();
                if is_other || is_agent_new {
                    known.version += 1;
                }

                known.merged = merged;
                known.for_pi = for_pi;
                known.agent = agent;
                known.source = LoginSource::Fresh;
                known.captured = Some(captured.clone());
                known.error = None;
                Some(captured)
            }
            Err(error) => {
                tracing::warn!(%error, "capture of the login environment failed");
                known.error = Some(error.to_string());
                None
            }
        }
    }

    async fn save(&self, captured: CapturedEnv) {
        let path = self.cache.clone();
        let saved = actix_rt::task::spawn_blocking(move || captured.save_blocking(&path)).await;
        // If saving fails, the next daemon captures again.
        if let Ok(Err(error)) = saved {
            tracing::warn!(%error, "cannot save the login environment");
        }
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn merge(own: &Variables, captured: Option<&CapturedEnv>) -> Variables {
    let login = captured.map(|captured| captured.environment.variables.as_slice());
    command_env::merge(own, login.unwrap_or_default())
}

#[cfg(test)]
mod tests;
