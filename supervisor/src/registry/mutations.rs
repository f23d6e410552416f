//! Changes of workspaces and sessions. Each is made in memory, saved, and answered when it is on disk.

use super::Registry;
use super::labels;
use super::persistence::kept;
use crate::errors::MethodError;
use crate::registry::catalog::{self, Fresh};
use crate::session::owner::Crashed;
use actix::prelude::*;
use quackd_protocol::client::{ActivateData, AttachData};
use std::sync::Arc;

/// Find or make the workspace and session of a directory.
#[derive(Debug, Message)]
#[rtype(result = "Result<AttachData, MethodError>")]
pub(crate) struct Attach {
    /// The resolved workspace path.
    pub(crate) path: String,
    /// Make it the active session.
    pub(crate) activate: bool,
    /// Sets the session's safe mode if present.
    pub(crate) safe_mode: Option<bool>,
    /// For a session that has to be made.
    pub(crate) fresh: Fresh,
}

impl Handler<Attach> for Registry {
    type Result = ResponseFuture<Result<AttachData, MethodError>>;

    fn handle(&mut self, msg: Attach, ctx: &mut Self::Context) -> Self::Result {
        let Attach { path, activate, safe_mode, fresh } = msg;
        self.change(ctx, safe_mode, |metadata| catalog::attach(metadata, &path, activate, fresh))
    }
}

/// Make one more session in the workspace of a directory.
#[derive(Debug, Message)]
#[rtype(result = "Result<AttachData, MethodError>")]
pub(crate) struct NewSession {
    /// The resolved workspace path.
    pub(crate) path: String,
    /// Its name; `duck-<n>` if absent.
    pub(crate) name: Option<String>,
    /// Make it the active session.
    pub(crate) activate: bool,
    /// Whether it may only do what changes nothing.
    pub(crate) safe_mode: Option<bool>,
    /// For the session.
    pub(crate) fresh: Fresh,
}

impl Handler<NewSession> for Registry {
    type Result = ResponseFuture<Result<AttachData, MethodError>>;

    fn handle(&mut self, msg: NewSession, ctx: &mut Self::Context) -> Self::Result {
        let NewSession { path, name, activate, safe_mode, fresh } = msg;
        self.change(ctx, safe_mode, |metadata| {
            let made = catalog::add_session(Arc::make_mut(metadata), &path, name, activate, fresh)?;
            Ok((made, true))
        })
    }
}

impl Registry {
    /// Makes a change that ends with a session, and its safe mode with it.
    fn change(
        &mut self,
        ctx: &mut Context<Self>,
        safe_mode: Option<bool>,
        make: impl FnOnce(
            &mut Arc<quackd_protocol::metadata::Metadata>,
        ) -> Result<(AttachData, bool), MethodError>,
    ) -> ResponseFuture<Result<AttachData, MethodError>> {
        if self.draining {
            return Box::pin(async { Err(MethodError::ShuttingDown) });
        }
        let (data, mut changed) = match make(&mut self.metadata) {
            Ok(made) => made,
            Err(error) => return Box::pin(async { Err(error) }),
        };
        // In force at once, also while the change is on its way to the disk: a session that shall be
        // safe must not be unsafe for a moment.
        if let Some(safe_mode) = safe_mode {
            changed |= self.change_state(&data.session.id, |state| state.safe_mode = safe_mode);
            self.tell_policy(&data.session.id);
        }
        let saved = self.keep(changed, ctx);
        Box::pin(async move { kept(saved).await.map(|()| data) })
    }
}

/// Make a session the active one.
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
        let is_known = labels::find(&self.metadata, &msg.reference).is_some();
        // Another program may have made it a moment ago.
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
        let found = labels::find(&self.metadata, reference).map(|it| it.id.0.clone());
        let wanted = found.as_deref().unwrap_or(reference);
        let activated = catalog::activate(&mut self.metadata, wanted)
            .map(|(data, changed)| (data, self.keep(changed, ctx)));
        async move {
            let (data, saved) = activated?;
            kept(saved).await.map(|()| data)
        }
    }
}

impl Handler<Crashed> for Registry {
    type Result = ();

    fn handle(&mut self, Crashed { session }: Crashed, ctx: &mut Self::Context) {
        let is_known = self.metadata.sessions.iter().any(|s| s.id == session);
        let count = |state: &mut quackd_protocol::state::SessionState| {
            state.restarts = state.restarts.saturating_add(1);
        };
        if is_known && self.change_state(&session, count) && !self.draining {
            // A failure is in the log, and loses the count.
            drop(self.save(ctx));
        }
    }
}
