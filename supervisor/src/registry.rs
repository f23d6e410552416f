//! The registry: which workspaces and sessions exist, which one is active, and who handles each.
//!
//! Owns: the metadata in memory and its last durable state, one [`WorkerHandle`] per session that was
//! ever used.
//! Receives: [`Attach`], [`ListSessions`], [`FindSession`], [`ListWorkers`], [`Drain`].
//! Blocks on: nothing. Saving happens on the store's thread; look-ups go on meanwhile.
//! Mailbox: [`MAILBOX`] messages; a sender waits for room.
//! Ends: with the daemon.
//!
//! Invariant: a change is answered with success only after it is on disk. One save is in flight at a
//! time; changes that arrive meanwhile share the next one. If a save fails, memory goes back to the last
//! durable state and everyone who waited is told.

use crate::catalog::{self, Fresh, Selection};
use crate::errors::MethodError;
use crate::services::{Services, now_text};
use crate::worker_handle::{Describe, Drain as DrainWorker, WorkerHandle};
use actix::prelude::*;
use quackd_protocol::SessionId;
use quackd_protocol::client::{AttachData, SessionInfo, WorkerInfo};
use quackd_protocol::metadata::{Metadata, Session};
use quackd_store::{StoreError, Writer};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Requests of many clients that wait for this actor. Each takes microseconds.
const MAILBOX: usize = 4096;

/// How long a worker's handle may take to describe itself; it never waits for its worker.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(2);

/// Where changes go.
#[derive(Debug)]
pub(crate) enum Saving {
    /// To the store's thread. Dropping it saves what was handed over.
    To(Writer),
    /// Nowhere: the file must not be written.
    Off {
        /// Why, for whoever wants to change something.
        why: String,
    },
}

/// Why a change is not on disk. One failure answers everyone who shared the save.
#[derive(Debug, Clone)]
enum NotKept {
    Failed(StoreError),
    ReadOnly(String),
}

/// Somebody who waits for a save.
type Waiter = oneshot::Sender<Result<(), NotKept>>;

/// See the module's documentation.
pub(crate) struct Registry {
    services: Rc<Services>,
    saving_to: Saving,
    metadata: Metadata,
    durable: Arc<Metadata>,
    saving: bool,
    /// Waiting for the save that is in flight.
    waiting: Vec<Waiter>,
    /// Waiting for the save after it.
    waiting_next: Vec<Waiter>,
    handles: HashMap<SessionId, Addr<WorkerHandle>>,
    safe_mode: HashMap<SessionId, bool>,
    draining: bool,
}

impl Registry {
    /// A registry of what was loaded.
    pub(crate) fn new(services: Rc<Services>, metadata: Metadata, saving_to: Saving) -> Self {
        Self {
            services,
            saving_to,
            durable: Arc::new(metadata.clone()),
            metadata,
            saving: false,
            waiting: Vec::new(),
            waiting_next: Vec::new(),
            handles: HashMap::new(),
            safe_mode: HashMap::new(),
            draining: false,
        }
    }

    /// The handle of a session, made when it is first needed.
    fn handle_of(&mut self, session: &SessionId, workspace: &str) -> Addr<WorkerHandle> {
        let services = &self.services;
        self.handles
            .entry(session.clone())
            .or_insert_with(|| {
                WorkerHandle::new(session.clone(), workspace.to_owned(), Rc::clone(services))
                    .start()
            })
            .clone()
    }

    fn found(&mut self, session: Session) -> Result<FoundSession, MethodError> {
        let workspace = catalog::workspace_of(&self.metadata, &session)
            .map(|w| w.path.clone())
            .ok_or(MethodError::WorkspaceUnknown)?;
        Ok(FoundSession {
            handle: self.handle_of(&session.id, &workspace),
            safe_mode: self.safe_mode.get(&session.id).copied().unwrap_or(false),
            session_id: session.id,
            session_name: session.name,
            workspace_path: workspace,
        })
    }

    /// Makes the metadata durable. The answer comes when the save that holds it has ended.
    fn save(&mut self, ctx: &mut Context<Self>) -> oneshot::Receiver<Result<(), NotKept>> {
        let (answer, answered) = oneshot::channel();
        if self.saving {
            self.waiting_next.push(answer);
        } else {
            self.waiting.push(answer);
            self.start_save(ctx);
        }
        answered
    }

    /// Waits with those whose change is being saved, if there are any.
    fn join_save(&mut self) -> Option<oneshot::Receiver<Result<(), NotKept>>> {
        let group = match (self.saving, self.waiting_next.is_empty()) {
            (false, _) => return None,
            (true, true) => &mut self.waiting,
            (true, false) => &mut self.waiting_next,
        };
        let (answer, answered) = oneshot::channel();
        group.push(answer);
        Some(answered)
    }

    fn start_save(&mut self, ctx: &mut Context<Self>) {
        let writer = match &self.saving_to {
            Saving::To(writer) => writer,
            Saving::Off { why } => {
                let why = why.clone();
                return self.saved(None, Err(NotKept::ReadOnly(why)), ctx);
            }
        };
        self.saving = true;
        let snapshot = Arc::new(self.metadata.clone());
        let saving = writer.save(Arc::clone(&snapshot));
        ctx.spawn(saving.into_actor(self).map(|result, registry, ctx| {
            registry.saving = false;
            registry.saved(Some(snapshot), result.map_err(NotKept::Failed), ctx);
        }));
    }

    fn saved(
        &mut self,
        snapshot: Option<Arc<Metadata>>,
        result: Result<(), NotKept>,
        ctx: &mut Context<Self>,
    ) {
        let answer = |waiting: Vec<Waiter>, result: &Result<(), NotKept>| {
            for waiter in waiting {
                // The client may have left; the change stays.
                waiter.send(result.clone()).ok();
            }
        };
        let waiting = std::mem::take(&mut self.waiting);
        let next = std::mem::take(&mut self.waiting_next);
        match &result {
            Ok(()) => {
                if let Some(snapshot) = snapshot {
                    self.durable = snapshot;
                }
                answer(waiting, &result);
                if !next.is_empty() {
                    self.waiting = next;
                    self.start_save(ctx);
                }
            }
            Err(error) => {
                tracing::error!(?error, "metadata was not saved; the change is taken back");
                self.metadata = Metadata::clone(&self.durable);
                answer(waiting, &result);
                answer(next, &result);
            }
        }
    }
}

impl Actor for Registry {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
    }
}

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
        if self.draining {
            return Box::pin(async { Err(MethodError::ShuttingDown) });
        }
        let attached = catalog::attach(&mut self.metadata, &msg.path, msg.activate, msg.fresh);
        let (data, changed) = match attached {
            Ok(attached) => attached,
            Err(error) => return Box::pin(async { Err(error) }),
        };
        // In force at once, also while the change is on its way to the disk: a session that shall be
        // safe must not be unsafe for a moment.
        if let Some(safe_mode) = msg.safe_mode {
            self.safe_mode.insert(data.session.id.clone(), safe_mode);
        }
        // What is there already may still be on its way to the disk, by somebody else's change.
        let saved = if changed { Some(self.save(ctx)) } else { self.join_save() };
        let Some(saved) = saved else { return Box::pin(async { Ok(data) }) };
        Box::pin(async move {
            match saved.await {
                Ok(Ok(())) => Ok(data),
                Ok(Err(NotKept::Failed(error))) => Err(MethodError::NotSaved(error)),
                Ok(Err(NotKept::ReadOnly(why))) => Err(MethodError::ReadOnly(why)),
                Err(_ended) => Err(MethodError::ShuttingDown),
            }
        })
    }
}

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
    /// Anything else.
    Look,
}

/// A session and who handles it.
#[derive(Debug, Clone)]
pub(crate) struct FoundSession {
    pub(crate) session_id: SessionId,
    pub(crate) session_name: String,
    pub(crate) workspace_path: String,
    pub(crate) safe_mode: bool,
    pub(crate) handle: Addr<WorkerHandle>,
}

impl Handler<FindSession> for Registry {
    type Result = Result<Option<FoundSession>, MethodError>;

    /// `Ok(None)`: no reference and no active session.
    fn handle(&mut self, msg: FindSession, _: &mut Self::Context) -> Self::Result {
        let found = match &msg.reference {
            Some(reference) => Some(
                catalog::find(&self.metadata, reference)
                    .ok_or_else(|| MethodError::SessionNotFound(reference.clone()))?,
            ),
            None => catalog::active(&self.metadata),
        };
        let Some(session) = found.cloned() else { return Ok(None) };
        if msg.purpose == Purpose::Use {
            catalog::touch(&mut self.metadata, &session.id, now_text());
        }
        self.found(session).map(Some)
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
        let rows: Vec<(SessionInfo, Option<Addr<WorkerHandle>>)> =
            catalog::select(&self.metadata, &selection)
                .map(|session| {
                    let path = paths.get(&session.workspace_id).copied().unwrap_or("unknown");
                    let info = SessionInfo {
                        id: session.id.clone(),
                        name: session.name.clone(),
                        workspace_path: path.to_owned(),
                        is_active: Some(&session.id) == active.as_ref(),
                        is_running: false,
                        last_active_at: session.last_active_at.clone(),
                    };
                    (info, self.handles.get(&session.id).cloned())
                })
                .collect();
        Box::pin(async move {
            let mut sessions = Vec::with_capacity(rows.len());
            for (mut info, handle) in rows {
                if let Some(handle) = handle {
                    let described = handle.send(Describe).timeout(DESCRIBE_LIMIT).await;
                    info.is_running = described.is_ok_and(|worker| worker.monitor_pid.is_some());
                }
                sessions.push(info);
            }
            sessions
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
        let rows: Vec<(String, Addr<WorkerHandle>)> = self
            .metadata
            .sessions
            .iter()
            .filter_map(|s| Some((s.name.clone(), self.handles.get(&s.id)?.clone())))
            .collect();
        Box::pin(async move {
            let mut workers = Vec::with_capacity(rows.len());
            for (name, handle) in rows {
                if let Ok(info) = handle.send(Describe).timeout(DESCRIBE_LIMIT).await {
                    workers.push(WorkerInfo { session_name: name, ..info });
                }
            }
            (workers, known)
        })
    }
}

/// Refuse new work, let calls finish until `until`, end every worker. Answered when all are gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Drain {
    pub(crate) until: Instant,
}

impl Handler<Drain> for Registry {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Drain { until }: Drain, ctx: &mut Self::Context) -> Self::Result {
        self.draining = true;
        let unsaved = self.metadata != *self.durable && matches!(self.saving_to, Saving::To(_));
        let saved = if unsaved { Some(self.save(ctx)) } else { self.join_save() };
        let drained: Vec<_> =
            self.handles.values().map(|handle| handle.send(DrainWorker { until })).collect();
        Box::pin(async move {
            // Sent to all before the first is awaited: sessions drain side by side.
            futures_util::future::join_all(drained).await;
            if let Some(saved) = saved {
                // A failure is in the log already.
                saved.await.ok();
            }
        })
    }
}
