//! Starts `quack isolate`, which makes, compares and applies the private copies of isolated sessions. The supervisor
//! itself touches no file of the user.

use super::login_env::{CaptureError, LoginEnv, OneShotReply, ask};
use super::one_shot::OneShot;
use super::spawner::Spawner;
use quackd_protocol::isolate::{FROM_ISOLATE_TAGS, FromIsolate, IsolateRequest, ToIsolate};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Maximum wait for the work on another copy.
const TURN_TIMEOUT: Duration = Duration::from_secs(30);

/// One instance per daemon.
#[derive(Debug)]
pub(crate) struct Isolation {
    spawner: Spawner,
    login: Rc<LoginEnv>,
    process: OneShot,
    /// Permit for the only running process.
    turn: Semaphore,
}

/// The reason why there is no answer, for display.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IsolationError {
    #[error("another copy is being worked on: try again")]
    Busy,
    #[error("cannot work on the copy: {0}")]
    Failed(#[from] CaptureError),
}

impl OneShotReply for FromIsolate {
    const TAGS: &[&str] = FROM_ISOLATE_TAGS;

    /// A refusal is an answer to the user, not a failure of the process.
    fn checked(self) -> Result<Self, CaptureError> {
        Ok(self)
    }
}

impl Isolation {
    pub(crate) fn new(spawner: Spawner, login: Rc<LoginEnv>, process: OneShot) -> Rc<Self> {
        Rc::new(Self { spawner, login, process, turn: Semaphore::new(1) })
    }

    /// Record of the processes, for `quack.tree`.
    pub(crate) fn one_shot(&self) -> &OneShot {
        &self.process
    }

    /// Does one piece of work in a new process. The caller must not drop the future: it records and reaps the process.
    pub(crate) async fn run(&self, request: IsolateRequest) -> Result<FromIsolate, IsolationError> {
        let turn = timeout(TURN_TIMEOUT, self.turn.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Err(IsolationError::Busy) };
        let request = ToIsolate::Isolate(request);
        Ok(ask(&self.process, &self.spawner, request, self.login.stopping()).await?)
    }
}
