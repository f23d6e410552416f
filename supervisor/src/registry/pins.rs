//! Pinned sessions: their processes stay however long nobody uses them. Durable, beside the session's safe mode.

use super::Registry;
use super::persistence::kept;
use crate::errors::MethodError;
use actix::prelude::*;
use quackd_protocol::SessionId;

/// Pin a session, or let it go.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), MethodError>")]
pub(crate) struct Pin {
    pub(crate) session: SessionId,
    pub(crate) pinned: bool,
}

impl Handler<Pin> for Registry {
    type Result = ResponseFuture<Result<(), MethodError>>;

    fn handle(&mut self, Pin { session, pinned }: Pin, ctx: &mut Self::Context) -> Self::Result {
        if self.draining {
            return Box::pin(async { Err(MethodError::ShuttingDown) });
        }
        if !self.metadata.sessions.iter().any(|known| known.id == session) {
            return Box::pin(async move { Err(MethodError::SessionNotFound(session.0)) });
        }
        let changed = self.change_state(&session, |state| state.pinned = pinned);
        // In force at once: what is to stay must not be ended while the change is on its way to the disk. If
        // the save fails it is told again.
        self.tell_pins();
        let saved = self.keep(changed, ctx);
        Box::pin(async move { kept(saved).await })
    }
}

impl Registry {
    /// Tells who must not be ended.
    pub(super) fn tell_pins(&self) {
        let pinned = self.state.sessions.iter().filter(|(_, state)| state.pinned);
        self.services.pool.statuses.set_pinned(pinned.map(|(id, _)| id.clone()));
    }
}
