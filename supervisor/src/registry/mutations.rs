//! Changes of workspaces and sessions. Each changes memory first, is saved, and is answered when it
//! is on disk. Called by methods.

use super::Registry;
use super::claims::Claim;
use super::labels;
use super::policies::AgentChange;
use super::restrictions::Restrictions;
use super::saves::{Changed, after_save};
use crate::errors::MethodError;
use crate::registry::catalog::{self, Fresh};
use actix::prelude::*;
use quackd_protocol::SessionId;
use quackd_protocol::client::{ActivateData, AttachData};
use quackd_protocol::isolate::CopiedTree;
use quackd_protocol::state::DaemonState;
use std::sync::Arc;

/// Open a session of a directory.
#[derive(Debug, Message)]
#[rtype(result = "Result<AttachData, MethodError>")]
pub(crate) struct OpenSession {
    /// Path of the workspace after symbolic links were resolved.
    pub(crate) path: String,
    pub(crate) kind: Open,
    /// Make it the active session.
    pub(crate) activate: bool,
    /// Sets the session's safe mode if present.
    pub(crate) safe_mode: Option<bool>,
    /// The agent of a new session.
    pub(crate) agent: AgentChange,
    /// Sessions whose restrictions a new session takes over.
    pub(crate) restrictions: Restrictions,
    /// The client that claims the session or makes it for itself.
    pub(crate) client: Option<String>,
    /// The private copy of a new isolated session. An existing session keeps its own.
    pub(crate) isolated: Option<CopiedTree>,
    /// Text that the engine's `create` printed for a new session. `None` if nothing was created.
    pub(crate) created: Option<String>,
    /// For a session that has to be created.
    pub(crate) fresh: Fresh,
}

/// See [`OpenSession`].
#[derive(Debug)]
pub(crate) enum Open {
    /// The last active session of the workspace. Created if there is none, like the workspace.
    Existing,
    /// Like `Existing`, without the sessions of clients (`SessionState::client`).
    Own,
    /// One more session with this name; `duck-<n>` if absent.
    New(Option<String>),
    /// The session that a client claims.
    Claimed(Claim),
}

impl Handler<OpenSession> for Registry {
    type Result = ResponseFuture<Result<AttachData, MethodError>>;

    fn handle(&mut self, msg: OpenSession, ctx: &mut Self::Context) -> Self::Result {
        Box::pin(after_save(self.open(msg, ctx)))
    }
}

/// Returns whether no client has claimed the session or made it for itself.
pub(super) fn is_own(state: &DaemonState, session: &SessionId) -> bool {
    state.sessions.get(session).is_none_or(|state| state.client.is_none())
}

impl Registry {
    /// Finds or creates a session, and sets its safe mode, restrictions and agent.
    fn open(&mut self, open: OpenSession, ctx: &mut Context<Self>) -> Changed<AttachData> {
        if self.draining {
            return Err(MethodError::ShuttingDown);
        }
        let OpenSession { path, kind, activate, fresh, .. } = open;

        let before = Arc::clone(&self.metadata);
        let (metadata, state) = (&mut self.metadata, &self.state);
        let (mut data, mut changed) = match kind {
            Open::Existing => catalog::attach(metadata, &path, activate, fresh, |_| true)?,
            Open::Own => catalog::attach(metadata, &path, activate, fresh, |id| is_own(state, id))?,
            Open::New(name) => {
                let metadata = Arc::make_mut(metadata);
                (catalog::add_session(metadata, &path, name, activate, fresh)?, true)
            }
            Open::Claimed(claim) => claim.make(metadata, &path, &self.clients, state, fresh)?,
        };

        // In force before the save: an isolated session must never run in the workspace itself.
        let is_new = before.sessions.iter().all(|known| known.id != data.session.id);
        if is_new && open.isolated.is_some() {
            changed |= self.change_state(&data.session.id, |state| state.isolated = open.isolated);
        }

        if is_new && open.created.is_some() {
            changed |= self.change_state(&data.session.id, |state| state.created = open.created);
        }

        // In force before the save: a session in safe mode must never run without it.
        if let Some(safe_mode) = open.safe_mode {
            changed |= self.change_state(&data.session.id, |state| state.safe_mode = safe_mode);
            self.tell_policy(&data.session.id);
        }

        if is_new {
            // In force before the save, like safe mode.
            data.note = self.restrict(&data.session.id, &open.restrictions, &before.sessions);
            changed |= data.note.is_some();
        }

        changed |= self.change_agent(&data.session.id, open.agent);
        if open.client.is_some() {
            changed |= self.change_state(&data.session.id, |state| state.client = open.client);
        }

        Ok((data, self.keep(changed, ctx)))
    }
}

/// Activate a session.
#[derive(Debug, Message)]
#[rtype(result = "Result<ActivateData, MethodError>")]
pub(crate) struct Activate {
    pub(crate) reference: String,
}

impl Handler<Activate> for Registry {
    type Result = ResponseActFuture<Self, Result<ActivateData, MethodError>>;

    fn handle(&mut self, msg: Activate, ctx: &mut Self::Context) -> Self::Result {
        if self.draining {
            return Box::pin(actix::fut::ready(Err(MethodError::ShuttingDown)));
        }

        let is_known = labels::find(&self.metadata, &self.state, &msg.reference).is_some();
        // Another program may have just created it.
        let looking = if is_known { None } else { self.look_for_more(ctx) };
        let Some(looking) = looking else {
            return Box::pin(self.activate(&msg.reference, ctx).into_actor(self));
        };
        Box::pin(looking.into_actor(self).then(move |(), registry, ctx| {
            registry.activate(&msg.reference, ctx).into_actor(registry)
        }))
    }
}

impl Registry {
    fn activate(
        &mut self,
        reference: &str,
        ctx: &mut Context<Self>,
    ) -> impl Future<Output = Result<ActivateData, MethodError>> + use<> {
        let session = labels::find(&self.metadata, &self.state, reference);
        let id = session.map(|session| session.id.0.clone());
        // The catalog knows no labels, so it gets the id.
        let reference = id.as_deref().unwrap_or(reference);

        let activated = catalog::activate(&mut self.metadata, reference)
            .map(|(data, changed)| (data, self.keep(changed, ctx)));
        after_save(activated)
    }
}

impl Registry {
    /// Changes the agent of a session. Returns whether anything differs.
    pub(super) fn change_agent(&mut self, session: &SessionId, change: AgentChange) -> bool {
        let AgentChange { engine, model, file } = change;
        let mut changed = self.change_state(session, |state| {
            if let Some(engine) = engine {
                state.engine = engine;
            }
            if let Some(model) = model {
                state.model = model;
            }
        });

        if let Some(file) = file
            && let Some(known) = catalog::by_id_mut(Arc::make_mut(&mut self.metadata), session)
        {
            known.pi_session_file = file;
            changed = true;
        }
        changed
    }
}
