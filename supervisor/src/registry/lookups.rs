//! Looking sessions up: which one a reference means, and the lists that clients see.

use super::Registry;
use super::labels::{self, Labels};
use crate::clock::now_text;
use crate::errors::MethodError;
use crate::registry::catalog::{self, Selection};
use crate::session::FoundSession;
use crate::session::worker::{Inspect, WorkerHandle};
use crate::voice::VoiceSession;
use actix::prelude::*;
use quackd_protocol::SessionId;
use quackd_protocol::client::{SessionInfo, WorkerInfo, WorkspaceInfo, WorkspaceSession};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a worker's handle may take to describe itself; it never waits for its worker.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(2);

/// Which session a reference means; the active one without a reference.
#[derive(Debug, Message)]
#[rtype(result = "Result<Option<FoundSession>, MethodError>")]
pub(crate) struct FindSession {
    pub(crate) reference: Option<String>,
    pub(crate) purpose: Purpose,
}

/// Whether a look-up counts as the session's doing something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A tool call: `lastActiveAt` moves on. It becomes durable with the next change, or at the stop.
    Use,
    /// To describe the session, which runs nothing. Its workspace may be unknown.
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
    type Result = ResponseActFuture<Self, Result<Option<FoundSession>, MethodError>>;

    /// `Ok(None)`: no reference and no active session. One that is not known may have been made by another
    /// program a moment ago.
    fn handle(&mut self, msg: FindSession, ctx: &mut Self::Context) -> Self::Result {
        let found = self.find(&msg, ctx);
        let looking = match found {
            Err(MethodError::SessionNotFound(_)) => self.look_for_more(ctx),
            _ => None,
        };
        match looking {
            None => Box::pin(actix::fut::ready(found)),
            Some(looking) => Box::pin(
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
                labels::find(&self.metadata, reference)
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
        self.found(session, msg.purpose, ctx).map(Some)
    }
}

/// The `sessions` method.
#[derive(Debug, Message)]
#[rtype(result = "Vec<SessionInfo>")]
pub(crate) struct ListSessions(pub(crate) Selection);

impl Handler<ListSessions> for Registry {
    type Result = ResponseFuture<Vec<SessionInfo>>;

    fn handle(
        &mut self,
        ListSessions(selection): ListSessions,
        _: &mut Self::Context,
    ) -> Self::Result {
        let active = catalog::active(&self.metadata).map(|s| s.id.clone());
        let paths = catalog::paths(&self.metadata);
        let mut labels = Labels::new(&self.metadata).all();
        let now = Instant::now();
        let mut sessions: Vec<SessionInfo> = catalog::select(&self.metadata, &selection)
            .map(|session| {
                let path = paths.get(&session.workspace_id).copied().unwrap_or("unknown");
                SessionInfo {
                    id: session.id.clone(),
                    name: session.name.clone(),
                    label: labels.remove(&session.id).unwrap_or_default(),
                    workspace_path: path.to_owned(),
                    is_active: Some(&session.id) == active.as_ref(),
                    is_running: false,
                    last_active_at: session.last_active_at.clone(),
                    status: self.services.pool.statuses.of(&session.id, now),
                }
            })
            .collect();
        let running = self.running();
        Box::pin(async move {
            let running = running.await;
            for session in &mut sessions {
                session.is_running = running.contains(&session.id);
            }
            sessions
        })
    }
}

/// The `workspaces` method.
#[derive(Debug, Message)]
#[rtype(result = "Vec<WorkspaceInfo>")]
pub(crate) struct ListWorkspaces;

impl Handler<ListWorkspaces> for Registry {
    type Result = ResponseFuture<Vec<WorkspaceInfo>>;

    fn handle(&mut self, _: ListWorkspaces, _: &mut Self::Context) -> Self::Result {
        let (metadata, running) = (Arc::clone(&self.metadata), self.running());
        Box::pin(async move {
            let running = running.await;
            let active = catalog::active(&metadata).map(|s| &s.id);
            let mut by_workspace = catalog::by_workspace(&metadata);
            let info = |workspace: &quackd_protocol::metadata::Workspace| {
                let sessions = by_workspace.remove(&workspace.id).unwrap_or_default();
                WorkspaceInfo {
                    id: workspace.id.clone(),
                    path: workspace.path.clone(),
                    last_active_session_id: workspace.last_active_session_id.clone(),
                    session_count: sessions.len(),
                    sessions: sessions
                        .into_iter()
                        .map(|session| WorkspaceSession {
                            id: session.id.clone(),
                            name: session.name.clone(),
                            is_active: Some(&session.id) == active,
                            is_running: running.contains(&session.id),
                            last_active_at: session.last_active_at.clone(),
                        })
                        .collect(),
                }
            };
            metadata.workspaces.iter().map(info).collect()
        })
    }
}

/// The workers of `quack.ps`, and how many sessions are known.
#[derive(Debug, Message)]
#[rtype(result = "(Vec<WorkerInfo>, usize)")]
pub(crate) struct ListWorkers;

impl Handler<ListWorkers> for Registry {
    type Result = ResponseFuture<(Vec<WorkerInfo>, usize)>;

    fn handle(&mut self, _: ListWorkers, _: &mut Self::Context) -> Self::Result {
        let known = self.metadata.sessions.len();
        let handles: Vec<Addr<WorkerHandle>> = self
            .metadata
            .sessions
            .iter()
            .filter_map(|session| self.handles.get(&session.id).cloned())
            .collect();
        let mut labels = Labels::new(&self.metadata).all();
        Box::pin(async move {
            let mut workers = Vec::with_capacity(handles.len());
            for handle in handles {
                if let Ok(report) = handle.send(Inspect).timeout(DESCRIBE_LIMIT).await {
                    let mut info = report.info;
                    info.label = labels.remove(&info.session_id).unwrap_or_default();
                    workers.push(info);
                }
            }
            (workers, known)
        })
    }
}

impl Registry {
    /// Sessions that have a process.
    fn running(&self) -> impl Future<Output = HashSet<SessionId>> + use<> {
        let handles: Vec<_> = self.handles.iter().map(|(id, h)| (id.clone(), h.clone())).collect();
        let pis = self.services.pis.running();
        async move {
            let mut running = pis;
            for (id, handle) in handles {
                let described = handle.send(Inspect).timeout(DESCRIBE_LIMIT).await;
                if described.is_ok_and(|worker| worker.info.monitor_pid.is_some()) {
                    running.insert(id);
                }
            }
            running
        }
    }
}
