//! Deletes a session: first from the metadata on disk, then its worker and its private files.

use super::Registry;
use super::saves::{Saved, kept};
use crate::children::DrainReason;
use crate::errors::{MethodError, RunningWork};
use crate::registry::catalog;
use crate::session::actors::ActorTable;
use crate::session::created::Creation;
use crate::voice::Voice;
use actix::prelude::*;
use quackd_protocol::SessionId;
use quackd_protocol::client::{AttachedSession, LOCAL_POLICY, SessionDeleteData};
use quackd_protocol::far::FarWorkspace;
use quackd_rubber_duck::session_gone;
use serde_json::json;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Timeout of the exit of a deleted session's processes, which are killed.
const END_LIMIT: Duration = Duration::from_secs(6);

/// Maximum time that the reply waits for the removal of the session's private files.
const FILES_LIMIT: Duration = Duration::from_millis(500);

/// Delete a session, or workspaces without sessions.
#[derive(Debug, Message)]
#[rtype(result = "Result<Option<SessionDeleteData>, MethodError>")]
pub(crate) enum Delete {
    /// Answered with the deleted session.
    Session {
        reference: String,
        /// End its running calls and background jobs.
        force: bool,
        /// Refuse a session with restrictions: the client could create one without them next.
        is_remote: bool,
    },
    /// Deletes the listed workspaces that have no session.
    EmptyWorkspaces(HashSet<String>),
}

impl Handler<Delete> for Registry {
    type Result = ResponseActFuture<Self, Result<Option<SessionDeleteData>, MethodError>>;

    fn handle(&mut self, msg: Delete, ctx: &mut Self::Context) -> Self::Result {
        if self.draining {
            return refuse(MethodError::ShuttingDown);
        }
        match msg {
            Delete::Session { reference, force, is_remote } => {
                if is_remote && self.is_restricted(&reference) {
                    return refuse(MethodError::LocalOnly(LOCAL_POLICY));
                }
                self.delete_session(reference, force, ctx)
            }
            Delete::EmptyWorkspaces(paths) => {
                let saved = self.forget_workspaces(&paths, ctx);
                Box::pin(async move { kept(saved).await.map(|()| None) }.into_actor(self))
            }
        }
    }
}

/// Reply to [`Delete`].
type Deleting = ResponseActFuture<Registry, Result<Option<SessionDeleteData>, MethodError>>;

impl Registry {
    fn delete_session(
        &mut self,
        reference: String,
        force: bool,
        ctx: &mut Context<Self>,
    ) -> Deleting {
        let Some(session) = catalog::find(&self.metadata, &reference) else {
            return refuse(MethodError::SessionNotFound(reference));
        };
        let id = session.id.clone();
        let running = self.services.table.snapshot(&id).worker.running();

        if !running.is_none() && !force {
            return refuse(MethodError::SessionHasWork(running));
        }
        // Taken before the removal, which may change the labels of other sessions.
        let labels = self.shown_labels();

        let session = match self.remove(&id) {
            Ok(session) => session,
            Err(error) => return refuse(error),
        };
        self.keep_labels(&labels);

        let saved = self.save(ctx);
        let RunningWork { calls: calls_ended, jobs: jobs_ended } = running;
        let data = SessionDeleteData {
            session,
            label: String::new(),
            calls_ended,
            jobs_ended,
            note: None,
        };

        let (actors, voice) = (Rc::clone(&self.actors), Rc::clone(&self.voice));
        let deleting = async move {
            kept(Some(saved)).await?;
            clear_away(&actors, &voice, &data.session).await;
            Ok(Some(data))
        };
        Box::pin(deleting.into_actor(self))
    }

    fn forget_workspaces(
        &mut self,
        paths: &HashSet<String>,
        ctx: &mut Context<Self>,
    ) -> Option<Saved> {
        let metadata = Arc::make_mut(&mut self.metadata);
        let used: HashSet<_> =
            metadata.sessions.iter().map(|session| session.workspace_id.clone()).collect();
        let before = metadata.workspaces.len();
        metadata
            .workspaces
            .retain(|workspace| used.contains(&workspace.id) || !paths.contains(&workspace.path));

        let has_changed = before != metadata.workspaces.len();
        self.keep(has_changed, ctx)
    }

    /// Returns what an engine created for a session.
    pub(super) fn creation(&self, id: &SessionId) -> Option<Creation> {
        let session = catalog::by_id(&self.metadata, id)?;
        let path = catalog::path_of(&self.metadata, session);
        let state = self.state_of(id);
        let far = FarWorkspace::of_session(path, state.isolated.as_ref());
        Creation::of(id, far, state.created)
    }

    pub(super) fn remove(&mut self, id: &SessionId) -> Result<AttachedSession, MethodError> {
        let removed = catalog::delete(Arc::make_mut(&mut self.metadata), id)
            .ok_or_else(|| MethodError::SessionNotFound(id.0.clone()))?;
        if self.state.sessions.contains_key(id) {
            // The other program may restore the session from an old copy. It must not have fewer restrictions then.
            let are_all_known = self.health.are_all_sessions_known();
            session_gone(Arc::make_mut(&mut self.state), &self.metadata, id, are_all_known);
        }
        Ok(removed)
    }
}

fn refuse(error: MethodError) -> Deleting {
    Box::pin(actix::fut::ready(Err(error)))
}

/// Stops the processes of a deleted session, notifies its followers and deletes its private files.
pub(super) async fn clear_away(actors: &ActorTable, voice: &Voice, session: &AttachedSession) {
    let services = &actors.services;
    if let Some(of_session) = actors.get(&session.id) {
        let drained = of_session.drain(Instant::now(), DrainReason::Deleted);
        if !matches!(tokio::time::timeout(END_LIMIT, drained).await, Ok(Ok(()))) {
            tracing::error!(session = %session.id, "processes of a deleted session have not ended yet");
        }
        services.agent_failure.forget(&session.id);
    }

    voice.session_deleted(&session.id);
    services.approvals.end_session(&session.id);
    // After the processes: they can publish events until they have exited.
    const NAME: &str = "session_deleted";
    services.events.publish(&session.id, NAME, || json!({ "type": NAME }));
    services.events.forget(&session.id);
    services.pool.networks.forget(&session.id);
    services.pool.copies.forget(&session.id);
    actors.remove(&session.id);

    let home = services.daemon.home.clone();
    let id = session.id.clone();
    // The process would write into the directory that is being deleted.
    let _paused = services.children.isolation.pause_states().await;
    let removing = actix_rt::task::spawn_blocking(move || {
        if let Err(error) = home.remove_session_run_dir_blocking(id.as_str()) {
            tracing::warn!(session = %id, %error, "run directory of a deleted session not removed");
        }
        if let Err(error) = home.remove_session_isolated_dir_blocking(id.as_str()) {
            tracing::warn!(session = %id, %error, "copy of a deleted session not removed");
        }
        if let Err(error) = home.remove_session_checkpoints_blocking(id.as_str()) {
            tracing::warn!(session = %id, %error, "states of a deleted session not removed");
        }
    });
    // The thread continues after the limit. If the daemon stops first, garbage collection removes the rest.
    if tokio::time::timeout(FILES_LIMIT, removing).await.is_err() {
        tracing::info!(session = %session.id, "files of a deleted session are removed in the background");
    }
}
