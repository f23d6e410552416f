//! Starts the process that uses one credential of the user for a session (`workers/credentials`). The supervisor itself
//! parses no bytes of commands, and sees no private key.

use super::login_env::{CaptureError, LoginEnv, OneShotReply, converse, receive, send};
use super::one_shot::OneShot;
use super::spawner::Spawner;
use quackd_ipc::frames;
use quackd_protocol::credentials::{
    CredentialAnswer, CredentialRefusal, CredentialStart, CredentialUse, FROM_CREDENTIALS_TAGS,
    FromCredentials, MAX_USES, ToCredentials,
};
use std::rc::Rc;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio_util::codec::Framed;

/// Most processes of all sessions.
const MAX_PROCESSES: usize = 32;

/// Result of a request.
type Answered = Result<CredentialAnswer, CredentialRefusal>;

/// One instance per daemon.
#[derive(Debug)]
pub(crate) struct Credentials {
    spawner: Spawner,
    login: Rc<LoginEnv>,
    /// Describes the last one of several processes.
    process: OneShot,
    running: Semaphore,
}

impl OneShotReply for FromCredentials {
    const TAGS: &[&str] = FROM_CREDENTIALS_TAGS;

    /// A refusal is an answer, not a failure of the process.
    fn checked(self) -> Result<Self, CaptureError> {
        Ok(self)
    }
}

impl Credentials {
    pub(crate) fn new(spawner: Spawner, login: Rc<LoginEnv>, process: OneShot) -> Rc<Self> {
        Rc::new(Self { spawner, login, process, running: Semaphore::new(MAX_PROCESSES) })
    }

    /// Record of the processes, for `quack.tree`.
    pub(crate) fn one_shot(&self) -> &OneShot {
        &self.process
    }

    /// Carries out a request in a new process, after `decide` has allowed one of its uses. The process ends even if the
    /// caller drops the future.
    pub(crate) async fn carry_out<F>(
        self: Rc<Self>,
        start: CredentialStart,
        decide: impl FnOnce(Vec<CredentialUse>) -> F + 'static,
    ) -> Answered
    where
        F: Future<Output = Result<(), CredentialRefusal>> + 'static,
    {
        // A dropped future would neither record nor reap the process.
        let asking = actix::spawn(async move {
            let Ok(_running) = self.running.try_acquire() else {
                return Ok(Err(CredentialRefusal::TooMany));
            };
            let exchange = |channel: UnixStream| async move {
                let mut channel = Framed::new(channel, frames::codec());
                send(&mut channel, &ToCredentials::Start(Box::new(start))).await?;
                let uses = match receive::<FromCredentials, _>(&mut channel).await? {
                    FromCredentials::Uses(uses) => read(&uses)?,
                    FromCredentials::Done(answered) => return Ok(answered),
                };
                if let Err(refusal) = decide(uses).await {
                    return Ok(Err(refusal));
                }
                send(&mut channel, &ToCredentials::Proceed {}).await?;
                match receive::<FromCredentials, _>(&mut channel).await? {
                    FromCredentials::Done(answered) => Ok(answered),
                    FromCredentials::Uses(_) => Err(malformed("a second list of uses")),
                }
            };
            converse(&self.process, &self.spawner, self.login.stopping(), exchange).await
        });

        match asking.await {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot use a credential");
                Err(CredentialRefusal::Failed)
            }
            // The daemon is stopping.
            Err(_) => Err(CredentialRefusal::Failed),
        }
    }
}

fn read(uses: &[String]) -> Result<Vec<CredentialUse>, CaptureError> {
    let uses = uses.iter().take(MAX_USES).map(|text| text.parse::<CredentialUse>());
    uses.collect::<Result<Vec<_>, _>>().map_err(|_none| malformed("no use of a credential"))
}

fn malformed(what: &str) -> CaptureError {
    CaptureError::Malformed(what.to_owned())
}
