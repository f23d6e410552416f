//! One session's worker as an actor: the only owner of the session's worker process.
//!
//! Owns: the worker's state machine, its heartbeat, its process and the table of unanswered calls.
//! Receives: [`CallTool`], [`AbortCalls`], [`Wake`], [`Describe`], [`CountWork`], [`Drain`] (clients, through the
//! registry); [`FrameArrived`], [`LinkClosed`] (the link).
//! Blocks on: nothing. Starting and reaping happen on the main thread.
//! Mailbox: [`MAILBOX`] messages; a sender waits for room.
//! Ends: with the daemon. Then every call that it still had is answered by the drop of its sender.
//!
//! Invariants: every call is answered exactly once, also when the worker dies. A call that was sent to
//! a worker is never sent again. What to do when is decided by `quackd-supervision`, which is pure;
//! this module only does it: [`calling`] the calls, [`life`] the process, [`frames`] what it says, [`jobs`] what
//! runs there without a call.

mod calling;
mod denials;
mod frames;
mod jobs;
mod life;
mod policy;

pub(crate) use calling::{AbortCalls, CallDone, CallTool};
pub(crate) use denials::ListDenials;
pub(crate) use frames::{FrameArrived, LinkClosed};
pub(crate) use life::Wake;
pub(crate) use policy::{InForce, ReportPolicy, UsePolicy};

use crate::calls::Calls;
use crate::errors::CallError;
use crate::registry::Registry;
use crate::services::Services;
use crate::worker_process::WorkerProcess;
use actix::WeakAddr;
use actix::prelude::*;
use quackd_process::SessionPaths;
use quackd_protocol::SessionId;
use quackd_protocol::client::WorkerInfo;
use quackd_protocol::limits::{
    HEARTBEAT_BUSY, HEARTBEAT_IDLE, HEARTBEAT_KILL, HEARTBEAT_MISSED, UPDATE_CREDITS,
};
use quackd_protocol::metadata::Session;
use quackd_protocol::policy::Policy;
use quackd_supervision::{Cause, Heartbeat, HeartbeatSpec, SESSION_WORKER, State, Worker};
use std::rc::Rc;
use std::time::Instant;
use tokio::sync::oneshot;

/// Messages of many clients of one session, and one frame at a time.
const MAILBOX: usize = 256;

const HEARTBEAT: HeartbeatSpec = HeartbeatSpec {
    busy: HEARTBEAT_BUSY,
    idle: HEARTBEAT_IDLE,
    missed: HEARTBEAT_MISSED,
    kill: HEARTBEAT_KILL,
};

/// See the module's documentation.
pub(crate) struct WorkerHandle {
    session: SessionId,
    name: String,
    workspace: String,
    services: Rc<Services>,
    registry: WeakAddr<Registry>,
    worker: Worker,
    process: Option<WorkerProcess>,
    /// Where the commands of that process live.
    cgroup: Option<SessionPaths>,
    generation: u64,
    /// What the next worker is confined to.
    policy: Policy,
    /// What the worker that there is was given.
    given_policy: Option<Policy>,
    /// The worker's workspace is not what its path leads to any more.
    is_stale: bool,
    /// Which of the login environments the worker was given.
    login_version: u64,
    calls: Calls,
    heartbeat: Heartbeat,
    /// The ping that is not answered yet.
    pinged: Option<u64>,
    heartbeat_timer: Option<SpawnHandle>,
    life_timer: Option<SpawnHandle>,
    idle_since: Instant,
    warnings: u32,
    /// Updates that the worker may still send.
    update_credits: u32,
    jobs: jobs::Jobs,
    denials: denials::Denials,
    /// Set once no more calls are taken.
    ending: Option<Ending>,
    drained: Vec<oneshot::Sender<()>>,
}

impl WorkerHandle {
    /// A session without a worker.
    pub(crate) fn new(
        session: &Session,
        workspace: String,
        policy: Policy,
        services: Rc<Services>,
        registry: WeakAddr<Registry>,
    ) -> Self {
        let now = Instant::now();
        Self {
            session: session.id.clone(),
            name: session.name.clone(),
            workspace,
            services,
            registry,
            worker: Worker::new(SESSION_WORKER),
            process: None,
            cgroup: None,
            generation: 0,
            policy,
            given_policy: None,
            is_stale: false,
            login_version: 0,
            calls: Calls::default(),
            heartbeat: Heartbeat::new(HEARTBEAT, now),
            pinged: None,
            heartbeat_timer: None,
            life_timer: None,
            idle_since: now,
            warnings: 0,
            update_credits: UPDATE_CREDITS,
            jobs: jobs::Jobs::default(),
            denials: denials::Denials::default(),
            ending: None,
            drained: Vec::new(),
        }
    }
}

impl Actor for WorkerHandle {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
    }
}

/// The session's line in `ps`.
#[derive(Debug, Message)]
#[rtype(result = "WorkerInfo")]
pub(crate) struct Describe;

impl Handler<Describe> for WorkerHandle {
    type Result = MessageResult<Describe>;

    fn handle(&mut self, _: Describe, _: &mut Self::Context) -> Self::Result {
        let now = Instant::now();
        let process = self.process.as_ref();
        let hello = process.and_then(|process| process.hello.as_ref());
        let state = match self.worker.state() {
            State::Ready { .. } if self.heartbeat.is_unresponsive() => "unresponsive",
            State::Ready { .. } if self.calls.any_sent() => "busy",
            other => other.name(),
        };
        MessageResult(WorkerInfo {
            session_id: self.session.clone(),
            session_name: self.name.clone(),
            workspace_path: self.workspace.clone(),
            state: state.to_owned(),
            pid: hello.map(|hello| hello.pid),
            monitor_pid: process.and_then(WorkerProcess::monitor_pid),
            started_at: process.map(|process| process.started_at.clone()),
            restarts: self.worker.crashes(),
            tier: hello.map(|hello| hello.sandbox.tier.clone()),
            policy: hello.map(|hello| hello.sandbox.policy.clone()),
            last_death: self.worker.last_crash().map(Cause::to_string),
            calls: self.calls.describe(now),
            jobs: self.jobs.describe(now),
            pi: None,
        })
    }
}

/// Take no more calls, let those in flight finish until `until`, end the worker. Answered when the
/// process is gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Drain {
    pub(crate) until: Instant,
    pub(crate) ending: Ending,
}

/// Why a session takes no more calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The daemon stops.
    Shutdown,
    /// The session was deleted.
    Deleted,
}

impl Ending {
    /// The answer to a call that comes now.
    pub(super) fn refusal(self) -> CallError {
        match self {
            Self::Shutdown => CallError::ShuttingDown,
            Self::Deleted => CallError::SessionGone,
        }
    }

    /// The answer to a call that was cut short.
    pub(super) fn cut_short(self) -> CallError {
        match self {
            Self::Shutdown => CallError::CutShort,
            Self::Deleted => CallError::Deleted,
        }
    }
}

/// What the end of the session would end with it.
#[derive(Debug, Message)]
#[rtype(result = "RunningWork")]
pub(crate) struct CountWork;

/// What runs in a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RunningWork {
    /// Calls that are not answered.
    pub(crate) calls: usize,
    /// Background jobs.
    pub(crate) jobs: usize,
}

impl RunningWork {
    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }
}

impl Handler<CountWork> for WorkerHandle {
    type Result = MessageResult<CountWork>;

    fn handle(&mut self, _: CountWork, _: &mut Self::Context) -> Self::Result {
        MessageResult(RunningWork { calls: self.calls.len(), jobs: self.jobs.count() })
    }
}

impl Handler<Drain> for WorkerHandle {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Drain { until, ending }: Drain, ctx: &mut Self::Context) -> Self::Result {
        self.ending = Some(ending);
        for number in self.calls.unsent() {
            self.answer(number, ctx, |_| Err(ending.refusal()));
        }
        if self.process.is_none() {
            return Box::pin(async {});
        }
        let (done, drained) = oneshot::channel();
        self.drained.push(done);
        ctx.run_later(until.saturating_duration_since(Instant::now()), |handle, _| {
            if let Some(process) = &mut handle.process {
                process.kill();
            }
        });
        self.end_if_drained(ctx);
        Box::pin(async {
            // An actor that ended has no process.
            drained.await.ok();
        })
    }
}

impl WorkerHandle {
    pub(super) fn end_if_drained(&mut self, ctx: &mut Context<Self>) {
        if self.ending.is_some() && !self.calls.any_sent() {
            let order = self.worker.drain(Instant::now());
            self.obey(order, ctx);
        }
    }
}
