//! The login environment: asked of the user's shell when the daemon starts, kept for the next daemon, and
//! merged into what commands get. Owned by the services, asked by each worker that starts.
//!
//! | at the start | the first workers | the shell is asked |
//! |---|---|---|
//! | an earlier daemon kept an answer | use it at once | [`SETTLE`] later |
//! | no answer kept, started from a shell (`SHLVL`) | use the daemon's own variables, which that shell set | [`SETTLE`] later |
//! | no answer kept, started by a service manager | wait for the answer, at most [`PATIENCE`] from the start | at once |
//! | switched off | use the daemon's own variables | never |
//!
//! A Pi that starts without a key in the daemon's own variables has the shell asked at once.
//!
//! A failure changes nothing: what is in use stays in use, and `doctor` says why. Workers that run keep the
//! environment that they were started with, unless that was next to nothing or a person asked for a new one:
//! then each is replaced at its next call.

mod cache;
mod capture;

pub(crate) use cache::{Captured, load_cached_blocking};

use crate::children::command_env::{self, Allowed, Variables};
use crate::children::pi_env as for_pi;
use crate::children::spawner::Spawner;
use crate::children::{Deaths, Errand};
use crate::clock::now_text;
use capture::{CaptureError, Stopping};
use quackd_protocol::environment::{
    CAPTURE_DEADLINE, CaptureRequest, LoginEnvironment, LoginSource, LoginState,
};
use quackd_supervision::ENVIRONMENT_WORKER;
use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

/// How long after the daemon's start a first worker may still wait for a login shell.
const PATIENCE: Duration = Duration::from_secs(3);

/// Pause before a login shell is asked for which no caller waits: the first calls of a new daemon come before
/// the user's start files. A caller that waits for the answer ends the pause.
const SETTLE: Duration = Duration::from_secs(2);

/// What the login environment is made from.
#[derive(Debug)]
pub(crate) struct LoginParts {
    /// Whether a login shell is asked at all.
    pub(crate) login_shell: bool,
    /// Names that the configuration adds to the list.
    pub(crate) extra: Vec<String>,
    /// The daemon's own variables, all of them.
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// Names of further variables for Pi.
    pub(crate) for_pi: Vec<String>,
    /// What [`load_cached_blocking`] found.
    pub(crate) cached: Option<Captured>,
    /// Where the next daemon looks for it.
    pub(crate) cache: PathBuf,
    /// An existing private directory.
    pub(crate) run_dir: PathBuf,
    /// Starts the process that asks.
    pub(crate) spawner: Spawner,
    /// Where it is noted how that came to nothing.
    pub(crate) deaths: Rc<Deaths>,
}

/// See the module's documentation. One per daemon, behind an `Rc` on the actors' thread.
#[derive(Debug)]
pub(crate) struct Login {
    login_shell: bool,
    allowed: Allowed,
    /// Names of further variables for Pi.
    for_pi: Vec<String>,
    own: Variables,
    cache: PathBuf,
    run_dir: PathBuf,
    spawner: Spawner,
    errand: Errand,
    stopping: Stopping,
    /// Ends [`SETTLE`]: a caller waits for the answer.
    hurry: Notify,
    /// Until then a worker waits for the first answer; `None` if none has to.
    patience: Option<Instant>,
    phase: watch::Sender<Phase>,
    /// Somebody wants a new answer to be in force at once.
    is_asked_for: Cell<bool>,
    known: RefCell<Known>,
}

/// What is going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    /// A login shell is asked, now or after [`SETTLE`].
    Asking,
    /// Its answer is in use, and on its way to the disk.
    Saving,
}

#[derive(Debug)]
struct Known {
    source: LoginSource,
    captured: Option<Captured>,
    error: Option<String>,
    /// INVARIANT: what `own` and `captured` merge to.
    merged: Variables,
    /// What of the last answer is for Pi: keys. Kept in memory only.
    for_pi: Variables,
    /// See [`Login::version`].
    version: u64,
}

impl Login {
    /// Makes it, and begins to ask a login shell unless that is switched off. Returns at once.
    pub(crate) fn start(parts: LoginParts) -> Rc<Self> {
        let login = Rc::new(Self::new(parts));
        if login.login_shell {
            login.begin(if login.patience.is_some() { Duration::ZERO } else { SETTLE });
        }
        login
    }

    fn new(parts: LoginParts) -> Self {
        let (allowed, refused) = Allowed::new(parts.extra);
        for name in refused {
            tracing::warn!(name, "this variable is never passed on to commands");
        }
        let has_shell = parts.variables.iter().any(|(name, _)| name == "SHLVL");
        let own = allowed.own(parts.variables.into_iter());
        let cached = parts.cached.filter(|_| parts.login_shell).and_then(|kept| {
            // The list may have become shorter since.
            Captured::new(kept.environment, kept.captured_at, &allowed)
        });
        let source = match &cached {
            _ if !parts.login_shell => LoginSource::Off,
            Some(_) => LoginSource::Cached,
            None => LoginSource::None,
        };
        if let Some(kept) = &cached {
            let captured_at = &kept.captured_at;
            tracing::info!(captured_at, "using the login environment that was kept");
        }
        let must_wait = source == LoginSource::None && !has_shell;
        let merged = merge(&own, cached.as_ref());
        Self {
            login_shell: parts.login_shell,
            allowed,
            for_pi: parts.for_pi,
            own,
            cache: parts.cache,
            run_dir: parts.run_dir,
            spawner: parts.spawner,
            errand: Errand::new(&ENVIRONMENT_WORKER, parts.deaths),
            stopping: Stopping::default(),
            hurry: Notify::new(),
            patience: must_wait.then(|| Instant::now() + PATIENCE),
            phase: watch::Sender::new(Phase::Idle),
            is_asked_for: Cell::new(false),
            known: RefCell::new(Known {
                source,
                captured: cached,
                error: None,
                merged,
                for_pi: Variables::new(),
                version: 1,
            }),
        }
    }

    /// The environment for the commands of a worker that is about to start. Waits for the first answer of a
    /// login shell only if there is nothing better than a service manager's variables, at most for `limit`
    /// and until [`PATIENCE`] after the start.
    pub(crate) async fn environment_for_worker(&self, limit: Duration) -> Variables {
        if let Some(patience) = self.patience {
            let until = patience.min(Instant::now() + limit);
            let mut phase = self.phase.subscribe();
            // Either way what is known then is the best there is.
            timeout_at(until, phase.wait_for(|phase| *phase != Phase::Asking)).await.ok();
        }
        self.known.borrow().merged.clone()
    }

    /// The variables of the login shell that are for Pi alone. The first time they are waited for, at most for
    /// `limit`: what was kept for this daemon by an earlier one has no keys.
    pub(crate) async fn environment_for_pi(&self, limit: Duration) -> Variables {
        let is_known = matches!(self.known.borrow().source, LoginSource::Fresh | LoginSource::Off);
        if !is_known && !limit.is_zero() {
            self.hurry.notify_one();
            let mut phase = self.phase.subscribe();
            let asked = phase.wait_for(|phase| *phase != Phase::Asking);
            // Either way what is known then is the best there is.
            timeout_at(Instant::now() + limit, asked).await.ok();
        }
        self.known.borrow().for_pi.clone()
    }

    /// Asks a login shell again, or waits for the answer that is on its way, and tells how it went. Does
    /// nothing if login shells are switched off. Takes at most about as long as a capture twice.
    pub(crate) async fn refresh(self: &Rc<Self>) -> LoginState {
        if self.login_shell {
            self.is_asked_for.set(true);
            self.begin(Duration::ZERO);
            self.hurry.notify_one();
            // Cannot fail: the sender is `self`.
            self.phase.subscribe().wait_for(|phase| *phase == Phase::Idle).await.ok();
        }
        self.state()
    }

    /// Changes when workers that run are to be replaced, because of the environment that they have.
    pub(crate) fn version(&self) -> u64 {
        self.known.borrow().version
    }

    /// How the processes that ask have gone.
    pub(crate) fn errand(&self) -> &Errand {
        &self.errand
    }

    /// For the end of the daemon: see [`Stopping`].
    pub(crate) fn stopping(&self) -> &Stopping {
        &self.stopping
    }

    /// What `doctor` shows.
    pub(crate) fn state(&self) -> LoginState {
        let known = self.known.borrow();
        let captured = known.captured.as_ref();
        let environment = captured.map(|captured| &captured.environment);
        let path = command_env::of(&known.merged, "PATH");
        LoginState {
            source: known.source,
            refreshing: *self.phase.borrow() == Phase::Asking,
            shell: environment.map(|environment| environment.shell.clone()),
            interactive: environment.map(|environment| environment.interactive),
            captured_at: captured.map(|captured| captured.captured_at.clone()),
            took_ms: environment.map(|environment| environment.took_ms),
            error: known.error.clone(),
            path_entries: path.split(':').map(str::to_owned).collect(),
        }
    }

    /// Asks a login shell after `delay`, unless one is asked already.
    fn begin(self: &Rc<Self>, delay: Duration) {
        let is_idle = |phase: &mut Phase| {
            let is_idle = *phase == Phase::Idle;
            *phase = if is_idle { Phase::Asking } else { *phase };
            is_idle
        };
        if !self.phase.send_if_modified(is_idle) {
            return;
        }
        let login = Rc::clone(self);
        actix::spawn(async move {
            // `notify_one` before the wait ends it too.
            timeout_at(Instant::now() + delay, login.hurry.notified()).await.ok();
            let (errand, spawner) = (&login.errand, &login.spawner);
            let answer = capture::capture(errand, spawner, login.request(), &login.stopping).await;
            if let Some(captured) = login.settle(answer) {
                login.phase.send_replace(Phase::Saving);
                login.save(captured).await;
            }
            login.phase.send_replace(Phase::Idle);
        });
    }

    fn request(&self) -> CaptureRequest {
        CaptureRequest {
            run_dir: self.run_dir.display().to_string(),
            base: command_env::for_login_shell(&self.own),
            names: self.names(),
            prefixes: owned(for_pi::PREFIXES),
            deadline_ms: u64::try_from(CAPTURE_DEADLINE.as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn names(&self) -> Vec<String> {
        [self.allowed.names(), owned(for_pi::NAMES), self.for_pi.clone()].concat()
    }

    /// Uses an answer. Gives what is to be kept for the next daemon.
    fn settle(&self, answer: Result<LoginEnvironment, CaptureError>) -> Option<Captured> {
        let mut for_pi = Variables::new();
        let captured = answer.and_then(|environment| {
            for_pi = for_pi::of_login_shell(&environment.variables, &self.for_pi);
            Captured::new(environment, now_text(), &self.allowed)
                .ok_or_else(|| CaptureError::Malformed("it is too large".to_owned()))
        });
        let mut known = self.known.borrow_mut();
        match captured {
            Ok(captured) => {
                let LoginEnvironment { shell, interactive, took_ms, .. } = &captured.environment;
                tracing::info!(shell, interactive, took_ms, "a login shell told its environment");
                let merged = merge(&self.own, Some(&captured));
                // Workers that began with next to nothing, or whose user asked for it, are to be replaced.
                // Others may go on: what they have is what the user had a moment ago.
                let was_missing = self.patience.is_some() && known.captured.is_none();
                if known.merged != merged && (was_missing || self.is_asked_for.take()) {
                    known.version += 1;
                }
                known.merged = merged;
                known.for_pi = for_pi;
                known.source = LoginSource::Fresh;
                known.captured = Some(captured.clone());
                known.error = None;
                Some(captured)
            }
            Err(error) => {
                tracing::warn!(%error, "no login shell told its environment");
                known.error = Some(error.to_string());
                None
            }
        }
    }

    async fn save(&self, captured: Captured) {
        let path = self.cache.clone();
        let saved = actix_rt::task::spawn_blocking(move || captured.save_blocking(&path)).await;
        // The next daemon asks anew.
        if let Ok(Err(error)) = saved {
            tracing::warn!(%error, "cannot keep the login environment");
        }
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn merge(own: &Variables, captured: Option<&Captured>) -> Variables {
    let login = captured.map(|captured| captured.environment.variables.as_slice());
    command_env::merge(own, login.unwrap_or_default())
}

#[cfg(test)]
mod tests;
