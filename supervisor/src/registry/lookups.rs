//! Finds the session of a reference, and starts its actors on first use.

use super::Registry;
use super::labels;
use super::policies::FoundPolicy;
use crate::children::DrainReason;
use crate::clock::now_text;
use crate::errors::MethodError;
use crate::registry::catalog;
use crate::session::FoundSession;
use crate::session::actors::{SessionActors, SessionStart};
use crate::session::agent::AgentChoice;
use crate::session::owner::Owner;
use crate::voice::VoiceSession;
use actix::prelude::*;
use quackd_protocol::metadata::Session;
use std::sync::Arc;
use std::time::Instant;

/// Find the session of a reference, or the active session without one.
#[derive(Debug, Message)]
#[rtype(result = "Result<Option<FoundSession>, MethodError>")]
pub(crate) struct FindSession {
    pub(crate) reference: Option<String>,
    pub(crate) purpose: Purpose,
}

/// Reason for finding a session. Decides what the registry updates and what it accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A tool call. Updates `lastActiveAt`, which the next change or the shutdown saves.
    Use,
    /// A description, which runs nothing. Accepts a session whose workspace is unknown.
    Describe,
    /// Anything else. Changes nothing.
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
    /// Returns the actors of a session. Starts them on first use.
    fn actors_of(&self, session: &Session, workspace: &str, ctx: &Context<Self>) -> SessionActors {
        if let Some(actors) = self.actors.get(&session.id) {
            return actors;
        }

        let FoundPolicy { policy, rules, .. } = self.policy_of(session);
        let state = self.state_of(&session.id);
        let start = SessionStart {
            session,
            label: self.snapshot().label(&session.id),
            workspace: workspace.to_owned(),
            policy,
            rules: Arc::new(rules),
            is_safe: state.safe_mode,
            choice: AgentChoice::from(&state),
            isolated: state.isolated,
            created: state.created,
        };

        let actors = self.actors.start(start, &Owner::new(&ctx.address()));
        if self.draining {
            // The drain of the registry did not reach them. An actor ignores a drain whose sender waits for no reply.
            actix::spawn(actors.drain(Instant::now(), DrainReason::Shutdown));
        }
        actors
    }

    fn found(
        &mut self,
        session: &Session,
        purpose: Purpose,
        ctx: &Context<Self>,
    ) -> Result<FoundSession, MethodError> {
        let known = catalog::workspace_of(&self.metadata, session).map(|w| w.path.clone());
        if known.is_none() && purpose != Purpose::Describe {
            return Err(MethodError::WorkspaceUnknown);
        }
        let has_workspace = known.is_some();
        let workspace = known.unwrap_or_else(|| "unknown".to_owned());

        let state = self.state_of(&session.id);
        let is_running = self.actors.get(&session.id).is_some();
        let actors = self.actors_of(session, &workspace, ctx);
        if !has_workspace && !is_running {
            // A session without a workspace can only be described. Its workspace may become known later. Actors that an
            // earlier look-up started may have processes, which a shutdown must reach.
            self.actors.remove(&session.id);
        }

        Ok(FoundSession {
            actors,
            has_workspace,
            safe_mode: state.safe_mode,
            restarts: state.restarts,
            pi_session_file: session.pi_session_file.clone(),
            agent: AgentChoice::from(&state),
            isolated: state.isolated,
            created: state.created,
            programs: state.programs,
            session_id: session.id.clone(),
            session_name: session.name.clone(),
            workspace_path: workspace,
        })
    }

    fn find(
        &mut self,
        msg: &FindSession,
        ctx: &Context<Self>,
    ) -> Result<Option<FoundSession>, MethodError> {
        let session = match &msg.reference {
            Some(reference) => Some(
                labels::find(&self.metadata, &self.state, reference)
                    .ok_or_else(|| MethodError::SessionNotFound(reference.clone()))?,
            ),
            None => catalog::active(&self.metadata),
        };
        let Some(session) = session.cloned() else { return Ok(None) };

        if msg.purpose == Purpose::Use {
            let now = now_text();
            // The time has whole seconds, so calls in quick succession change nothing.
            if session.last_active_at != now
                && let Some(known) =
                    catalog::by_id_mut(Arc::make_mut(&mut self.metadata), &session.id)
            {
                known.last_active_at = now;
            }
        }
        self.found(&session, msg.purpose, ctx).map(Some)
    }
}
