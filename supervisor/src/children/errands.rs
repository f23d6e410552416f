//! Starts the process of one far errand (`quack far-errand`, `workers/link`): one piece of work with an engine, such as a
//! command that creates a machine. The supervisor itself runs no client of an engine.

use super::login_env::{CaptureError, LoginEnv, OneShotReply, ask};
use super::one_shot::OneShot;
use super::spawner::Spawner;
use quackd_protocol::SessionId;
use quackd_protocol::far_errand::{FROM_ERRAND_TAGS, FromErrand, ToErrand};
use quackd_protocol::foreign_text::message_line;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use tokio::sync::Semaphore;

/// Most processes at the same time.
const MAX_PROCESSES: usize = 16;

/// Longest reason of a process, in characters.
const MAX_REASON: usize = 600;

/// One instance per daemon.
#[derive(Debug)]
pub(crate) struct Errands {
    spawner: Spawner,
    login: Rc<LoginEnv>,
    /// Describes the last one of several processes.
    process: OneShot,
    running: Semaphore,
    /// Sessions whose copy is being moved, with the number of their permits.
    moving: RefCell<BTreeMap<SessionId, usize>>,
}

/// Permit to move the copy of a session. One command has it, and each process that moves the copy for that command: it
/// may end after the command, whose client can leave.
#[derive(Debug)]
pub(crate) struct MovingCopy {
    errands: Rc<Errands>,
    session: SessionId,
}

impl MovingCopy {
    fn new(errands: &Rc<Errands>, session: &SessionId) -> Self {
        *errands.moving.borrow_mut().entry(session.clone()).or_default() += 1;
        Self { errands: Rc::clone(errands), session: session.clone() }
    }
}

impl Drop for MovingCopy {
    fn drop(&mut self) {
        let mut moving = self.errands.moving.borrow_mut();
        let Some(n_permits) = moving.get_mut(&self.session) else { return };
        *n_permits -= 1;
        if *n_permits == 0 {
            moving.remove(&self.session);
        }
    }
}

/// The reason why an errand has no result, for display.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ErrandError {
    #[error("too many machines are being worked on at the same time: try again")]
    Busy,
    /// The process reported the reason.
    #[error("{0}")]
    Failed(String),
    #[error("the process that works with the engine failed: {0}")]
    Process(#[from] CaptureError),
}

impl OneShotReply for FromErrand {
    const TAGS: &[&str] = FROM_ERRAND_TAGS;

    /// A failure of the engine is an answer, not a failure of the process.
    fn checked(self) -> Result<Self, CaptureError> {
        Ok(self)
    }
}

impl Errands {
    pub(crate) fn new(spawner: Spawner, login: Rc<LoginEnv>, process: OneShot) -> Rc<Self> {
        let (running, moving) = (Semaphore::new(MAX_PROCESSES), RefCell::default());
        Rc::new(Self { spawner, login, process, running, moving })
    }

    /// Returns the permit to move the copy of a session. `None` if another command has it.
    pub(crate) fn move_copy(self: &Rc<Self>, session: &SessionId) -> Option<MovingCopy> {
        let is_free = !self.moving.borrow().contains_key(session);
        is_free.then(|| MovingCopy::new(self, session))
    }

    /// Record of the processes, for `quack.tree`.
    pub(crate) fn one_shot(&self) -> &OneShot {
        &self.process
    }

    /// Carries out an errand in a new process, within the errand's own time limit. It goes on if the caller drops the
    /// future, and ends when the daemon stops. The answer is never [`FromErrand::Failed`].
    pub(crate) async fn carry_out(
        self: Rc<Self>,
        errand: ToErrand,
    ) -> Result<FromErrand, ErrandError> {
        let moving = match &errand {
            ToErrand::Send(send) => Some(MovingCopy::new(&self, &SessionId(send.session.clone()))),
            ToErrand::Run(_) => None,
        };
        // A dropped future would neither record nor reap the process.
        let asking = actix::spawn(async move {
            let _moving = moving;
            let Ok(_running) = self.running.try_acquire() else { return Err(ErrandError::Busy) };
            let stopping = self.login.stopping();
            match ask(&self.process, &self.spawner, errand, stopping).await? {
                FromErrand::Failed { text } => {
                    Err(ErrandError::Failed(message_line(&text, MAX_REASON)))
                }
                answer => Ok(answer),
            }
        });
        asking.await.unwrap_or_else(|_| Err(CaptureError::Stopping.into()))
    }
}
