//! One session's worker as an actor: the only owner of the session's worker process.
//!
//! Owns: the worker's state machine, its heartbeat, its process and the table of unanswered calls.
//! Receives: [`CallTool`], [`ControlCalls`], [`Wake`], [`Inspect`], [`UsePolicy`], [`Drain`] (clients, through the
//! registry); `ChannelEvent` (the link); `Manage` ([`crate::pool::worker_pool`], and the user).
//! Blocks on: nothing. Starting and reaping happen on the main thread.
//! Mailbox: [`MAILBOX`] messages; a sender waits for room.
//! Ends: with the daemon. Then every call that it still had is answered by the drop of its sender.
//!
//! Invariants: every call is answered exactly once, also when the worker dies. A call that was sent to
//! a worker is never sent again, unless that worker reports that it was not run: then once. What to do when is decided by `quackd-supervision`, which is pure;
//! [`crate::children`] does it for every kind of process; here is what is special about workers: [`calls`] the
//! calls, [`lifecycle`] the process, [`frames`] what it says, [`jobs`] what
//! runs there without a call.

mod calls;
mod child_impl;
mod denials;
mod frames;
mod jobs;
mod lifecycle;
mod policy;

pub(crate) use crate::children::Ending;
pub(crate) use calls::{CallDone, CallTool, ControlCalls};
pub(crate) use lifecycle::Wake;
pub(crate) use policy::{InForce, UsePolicy};

use crate::children::{Child, Eviction, Life, Supervised, ms};
use crate::errors::RunningWork;
use crate::pool::session_status::Stopped;
use crate::session::owner::Owner;
use crate::session::pending_calls::Calls;
use crate::session::services::SessionServices;
use actix::prelude::*;
use quackd_protocol::SessionId;
use quackd_protocol::client::{DenialsData, WorkerInfo};
use quackd_protocol::limits::UPDATE_CREDITS;
use quackd_protocol::metadata::Session;
use quackd_protocol::policy::Policy;
use quackd_protocol::worker::Hello;
use quackd_supervision::SESSION_WORKER;
use std::rc::Rc;
use std::time::Instant;

/// Messages of many clients of one session, and one frame at a time.
const MAILBOX: usize = 256;

/// See the module's documentation.
pub(crate) struct WorkerHandle {
    session: SessionId,
    name: String,
    workspace: String,
    services: Rc<SessionServices>,
    owner: Owner,
    child: Child,
    /// What the worker that there is has said of itself; information for people only.
    hello: Option<Hello>,
    /// What the next worker is confined to.
    policy: Policy,
    /// What the worker that there is was given.
    given_policy: Option<Policy>,
    /// The worker's workspace is not what its path leads to any more.
    is_stale: bool,
    /// The user wants the worker replaced although background jobs run in it.
    ends_jobs: bool,
    /// Which of the login environments the worker was given.
    login_version: u64,
    calls: Calls,
    idle_since: Instant,
    /// Why the last process is not there any more.
    stopped: Stopped,
    /// The process that there is was ended for this.
    evicted: Option<Eviction>,
    /// Updates that the worker may still send.
    update_credits: u32,
    jobs: jobs::Jobs,
    denials: denials::Denials,
}

impl WorkerHandle {
    /// A session without a worker.
    pub(crate) fn new(
        session: &Session,
        workspace: String,
        policy: Policy,
        services: Rc<SessionServices>,
        owner: Owner,
    ) -> Self {
        Self {
            session: session.id.clone(),
            name: session.name.clone(),
            workspace,
            services,
            owner,
            child: Child::new(SESSION_WORKER, session.id.0.clone()),
            hello: None,
            policy,
            given_policy: None,
            is_stale: false,
            ends_jobs: false,
            login_version: 0,
            calls: Calls::default(),
            idle_since: Instant::now(),
            stopped: Stopped::default(),
            evicted: None,
            update_credits: UPDATE_CREDITS,
            jobs: jobs::Jobs::default(),
            denials: denials::Denials::default(),
        }
    }
}

impl Actor for WorkerHandle {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        self.services.pool.workers.enter(&self.session, &ctx.address());
    }
}

/// Report the state of the session's worker, its calls and its jobs.
#[derive(Debug, Message)]
#[rtype(result = "WorkerReport")]
pub(crate) struct Inspect;

/// See [`Inspect`].
#[derive(Debug)]
pub(crate) struct WorkerReport {
    /// The session's row in `ps`.
    pub(crate) info: WorkerInfo,
    /// What an end of the session would interrupt.
    pub(crate) running: RunningWork,
    pub(crate) in_force: InForce,
    pub(crate) denials: DenialsData,
}

impl Handler<Inspect> for WorkerHandle {
    type Result = MessageResult<Inspect>;

    fn handle(&mut self, _: Inspect, _: &mut Self::Context) -> Self::Result {
        let running = RunningWork { calls: self.calls.len(), jobs: self.jobs.count() };
        MessageResult(WorkerReport {
            info: self.info(),
            running,
            in_force: self.in_force(),
            denials: self.denials(),
        })
    }
}

impl WorkerHandle {
    fn info(&self) -> WorkerInfo {
        let now = Instant::now();
        let hello = self.hello.as_ref();
        let life = self.child.describe(now);
        let is_busy = life.state == "ready" && self.calls.any_sent();
        let state = if is_busy { "busy".to_owned() } else { life.state.clone() };
        WorkerInfo {
            session_id: self.session.clone(),
            session_name: self.name.clone(),
            label: String::new(),
            workspace_path: self.workspace.clone(),
            state,
            pid: hello.map(|hello| hello.pid),
            monitor_pid: self.child.monitor_pid(),
            started_at: self.child.started_at(),
            restarts: life.crashes,
            tier: hello.map(|hello| hello.sandbox.tier.clone()),
            policy: hello.map(|hello| hello.sandbox.policy.clone()),
            network: hello.map(|hello| hello.sandbox.network),
            last_death: life.last_cause.clone(),
            calls: self.calls.describe(now),
            jobs: self.jobs.describe(now),
            pi: None,
            status: self.services.pool.statuses.of(&self.session, now),
            why: self.services.pool.statuses.why_worker(&self.session),
            rss_kb: None,
            usage: None,
            idle_ms: self
                .idle_until()
                .filter(|_| self.child.is_ready())
                .map(|_| ms(now.saturating_duration_since(self.idle_since))),
            life,
        }
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

impl Handler<Drain> for WorkerHandle {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Drain { until, ending }: Drain, ctx: &mut Self::Context) -> Self::Result {
        self.child.ending = Some(ending);
        for number in self.calls.unsent() {
            self.answer(number, ctx, |_| Err(ending.refusal()));
        }
        let gone = self.gone_by(until, ctx);
        self.end_if_drained(ctx);
        Box::pin(async {
            if let Some(gone) = gone {
                // An actor that ended has no process.
                gone.await.ok();
            }
        })
    }
}

impl WorkerHandle {
    pub(super) fn end_if_drained(&mut self, ctx: &mut Context<Self>) {
        if self.child.ending.is_some() && !self.calls.any_sent() {
            self.retire(ctx);
        }
    }
}
