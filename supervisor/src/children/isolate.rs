//! Starts the process that works on the private copies of isolated sessions, and the one that records the states of
//! sessions' files. The supervisor itself touches no file of the user.

use super::login_env::{CaptureError, LoginEnv, OneShotReply, ask};
use super::one_shot::OneShot;
use super::spawner::Spawner;
use quackd_protocol::isolate::{
    CheckpointRequest, FROM_ISOLATE_TAGS, FromIsolate, IsolateRequest, ToIsolate,
};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Maximum wait for the work of another session.
const TURN_TIMEOUT: Duration = Duration::from_secs(30);

/// One instance per daemon.
#[derive(Debug)]
pub(crate) struct Isolation {
    spawner: Spawner,
    login: Rc<LoginEnv>,
    copies: Kind,
    states: Kind,
}

/// Record of one kind of process, and the permit for the only running one.
#[derive(Debug)]
struct Kind {
    process: OneShot,
    turn: Semaphore,
}

/// The reason why there is no answer, for display.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IsolationError {
    #[error("the files of another session are being worked on: try again")]
    Busy,
    #[error(
        "no answer from the process that works on the files of the session{}: either the work is done, or the next command \
         takes back what was written. Look before you run it again",
        in_words(.0)
    )]
    Unanswered(String),
    #[error("cannot work on the files of the session: {0}")]
    Failed(#[source] CaptureError),
}

/// The last words of a process, for an error.
fn in_words(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(" ({words})") }
}

impl From<CaptureError> for IsolationError {
    fn from(error: CaptureError) -> Self {
        match error {
            CaptureError::Ended(words) => Self::Unanswered(words),
            // The process may have done its work just before.
            CaptureError::Stopping | CaptureError::Silent(_) => Self::Unanswered(error.to_string()),
            error => Self::Failed(error),
        }
    }
}

impl OneShotReply for FromIsolate {
    const TAGS: &[&str] = FROM_ISOLATE_TAGS;

    /// A refusal is an answer to the user, not a failure of the process.
    fn checked(self) -> Result<Self, CaptureError> {
        Ok(self)
    }
}

impl Isolation {
    /// Creates the records of the process for copies and of that for states.
    pub(crate) fn new(
        spawner: Spawner,
        login: Rc<LoginEnv>,
        copies: OneShot,
        states: OneShot,
    ) -> Rc<Self> {
        let kind = |process| Kind { process, turn: Semaphore::new(1) };
        Rc::new(Self { spawner, login, copies: kind(copies), states: kind(states) })
    }

    /// Records of the processes, for `quack.tree`.
    pub(crate) fn one_shots(&self) -> [&OneShot; 2] {
        [&self.copies.process, &self.states.process]
    }

    /// Does one piece of work on a copy in a new process. The work goes on if the caller drops the future.
    pub(crate) async fn run(
        self: Rc<Self>,
        request: IsolateRequest,
    ) -> Result<FromIsolate, IsolationError> {
        self.ask(|it| &it.copies, ToIsolate::Isolate(request)).await
    }

    /// As [`Self::run`], for the states of a session's files.
    pub(crate) async fn run_on_states(
        self: Rc<Self>,
        request: CheckpointRequest,
    ) -> Result<FromIsolate, IsolationError> {
        self.ask(|it| &it.states, ToIsolate::Checkpoints(request)).await
    }

    /// Waits until no state is being recorded. None is until the permit is dropped. `None` if the wait took too long.
    pub(crate) async fn pause_states(&self) -> Option<SemaphorePermit<'_>> {
        timeout(TURN_TIMEOUT, self.states.turn.acquire()).await.ok()?.ok()
    }

    async fn ask(
        self: Rc<Self>,
        kind: fn(&Self) -> &Kind,
        request: ToIsolate,
    ) -> Result<FromIsolate, IsolationError> {
        // A dropped future would neither record nor reap the process.
        let asking = actix::spawn(async move {
            let kind = kind(&self);
            let turn = timeout(TURN_TIMEOUT, kind.turn.acquire()).await;
            let Ok(Ok(_turn)) = turn else { return Err(IsolationError::Busy) };
            Ok(ask(&kind.process, &self.spawner, request, self.login.stopping()).await?)
        });
        asking.await.unwrap_or_else(|_| Err(CaptureError::Stopping.into()))
    }
}
