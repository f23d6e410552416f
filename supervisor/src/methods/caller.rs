//! The calling client, with the services that handlers use. A connection creates one for its client, and every handler
//! receives it.

use crate::errors::MethodError;
use crate::events::client_registry::{Client, Transport};
use crate::registry::{
    ChangeSession, FindSession, FoundPolicy, Purpose, Registry, RegistrySnapshot, Restrictions,
    SessionChange, TakeSnapshot,
};
use crate::services::Services;
use crate::session::FoundSession;
use crate::session::worker::ClientLeft;
use actix::Addr;
use quackd_protocol::SessionId;
use quackd_protocol::client::LOCAL_APP;
use quackd_protocol::limits::LOCAL_APP_DEADLINE;
use std::rc::Rc;
use std::time::Duration;

/// Timeout for saving a change, because the disk may hang. The change may still be saved later.
pub(super) const SAVE_LIMIT: Duration = Duration::from_secs(20);

/// The calling client, with the services that methods use.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) services: Rc<Services>,
    pub(crate) registry: Addr<Registry>,
    pub(crate) client: Rc<Client>,
}

impl Caller {
    pub(crate) fn new(
        services: Rc<Services>,
        registry: Addr<Registry>,
        client: Rc<Client>,
    ) -> Self {
        Self { services, registry, client }
    }

    /// Returns true for a client on the Unix socket. Some methods, and parts of others, are only for local clients.
    pub(super) fn is_local(&self) -> bool {
        self.client.transport == Transport::Socket
    }

    /// Returns the restrictions of a session that this client creates.
    pub(super) fn restrictions(&self) -> Restrictions {
        if self.is_local() { Restrictions::default() } else { Restrictions::remote() }
    }

    /// Takes a snapshot of all workspaces and sessions.
    pub(super) async fn snapshot(&self) -> Result<RegistrySnapshot, MethodError> {
        Ok(self.registry.send(TakeSnapshot).await?)
    }

    /// Finds the session of a reference, or the active session without a reference.
    pub(super) async fn find(
        &self,
        reference: Option<String>,
        purpose: Purpose,
    ) -> Result<Option<FoundSession>, MethodError> {
        self.registry.send(FindSession { reference, purpose }).await?
    }

    /// Like [`Self::find`], but without an active session the error is `NoSession`.
    pub(super) async fn session(
        &self,
        reference: Option<String>,
        purpose: Purpose,
    ) -> Result<FoundSession, MethodError> {
        self.find(reference, purpose).await?.ok_or(MethodError::NoSession)
    }

    /// Changes a session. Returns its policy when the change is on disk.
    pub(super) async fn change(
        &self,
        session: &SessionId,
        change: SessionChange,
    ) -> Result<FoundPolicy, MethodError> {
        let change = ChangeSession { session: session.clone(), change };
        self.registry.send(change).timeout(SAVE_LIMIT).await?
    }

    /// Returns the time after which this client gives up, if it is known.
    pub(super) fn gives_up(&self) -> Option<Duration> {
        let kind = self.services.voice.kind(&self.client.id)?;
        (kind == LOCAL_APP).then_some(LOCAL_APP_DEADLINE)
    }

    /// Ends the client's following and its voice role, after a disconnect or an unfollow.
    pub(crate) fn disconnect(&self) {
        let session = self.client.stop_following();
        let voice = &self.services.voice;
        if let Some(session) = session {
            voice.unfollowed(&session, &self.client);
        }
        voice.forget(&self.client.id);
    }

    /// Ends the background jobs of the sessions that the client claimed, after a disconnect.
    #[expect(
        clippy::disallowed_methods,
        reason = "a signal that must not be lost; a disconnect causes one per claim, and claims are limited"
    )]
    pub(crate) fn end_jobs(&self) {
        let sessions = self.client.claims.ending_jobs().into_iter();
        for actors in sessions.filter_map(|session| self.services.actors.get(&session)) {
            actors.worker.do_send(ClientLeft);
        }
    }
}
