//! The calling client, with the services that handlers use. A connection creates one for its client, and every handler
//! receives it.

use crate::events::client_registry::Client;
use crate::registry::Registry;
use crate::services::Services;
use crate::session::worker::ClientLeft;
use actix::Addr;
use quackd_protocol::client::LOCAL_APP;
use quackd_protocol::limits::LOCAL_APP_DEADLINE;
use std::rc::Rc;
use std::time::Duration;

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

    /// The time after which this client gives up, if it is known.
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
