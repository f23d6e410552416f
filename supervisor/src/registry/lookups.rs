//! Finds the session of a reference.

use super::Registry;
use super::labels;
use crate::clock::now_text;
use crate::errors::MethodError;
use crate::registry::catalog;
use crate::session::FoundSession;
use crate::voice::VoiceSession;
use actix::prelude::*;
use std::sync::Arc;

/// Find the session of a reference, or the active session without one.
#[derive(Debug, Message)]
#[rtype(result = "Result<Option<FoundSession>, MethodError>")]
pub(crate) struct FindSession {
    pub(crate) reference: Option<String>,
    pub(crate) purpose: Purpose,
}

/// The reason for finding a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A tool call. Updates `lastActiveAt`, which the next change or the shutdown saves.
    Use,
    /// A description, which runs nothing. The session's workspace may be unknown.
    Describe,
    /// Anything else.
    Look,
}

impl From<FoundSession> for VoiceSession {
    fn from(found: FoundSession) -> Self {
        Self { id: found.session_id, name: found.session_name, path: found.workspace_path }
    }
}

impl Handler<FindSession> for Registry {
    type Result = ActorResponse<Self, Result<Option<FoundSession>, MethodError>>;

    /// `Ok(None)`: no reference and no active session. Reads the file for an unknown reference, because another program
    /// may have just created the session.
    fn handle(&mut self, msg: FindSession, ctx: &mut Self::Context) -> Self::Result {
        let found = self.find(&msg, ctx);
        let looking = match found {
            Err(MethodError::SessionNotFound(_)) => self.look_for_more(ctx),
            _ => None,
        };
        match looking {
            None => ActorResponse::reply(found),
            Some(looking) => ActorResponse::r#async(
                looking.into_actor(self).map(move |(), registry, ctx| registry.find(&msg, ctx)),
            ),
        }
    }
}

impl Registry {
    fn find(
        &mut self,
        msg: &FindSession,
        ctx: &Context<Self>,
    ) -> Result<Option<FoundSession>, MethodError> {
        let found = match &msg.reference {
            Some(reference) => Some(
                labels::find(&self.metadata, &self.state, reference)
                    .ok_or_else(|| MethodError::SessionNotFound(reference.clone()))?,
            ),
            None => catalog::active(&self.metadata),
        };
        let Some(session) = found.cloned() else { return Ok(None) };
        if msg.purpose == Purpose::Use {
            let now = now_text();
            if session.last_active_at != now {
                catalog::touch(Arc::make_mut(&mut self.metadata), &session.id, now);
            }
        }
        self.found(&session, msg.purpose, ctx).map(Some)
    }
}
