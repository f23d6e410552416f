//! The actor that owns one session's worker process.
//!
//! Owns: the worker's state machine, its heartbeat, its process and the table of pending calls.
//! Receives: [`CallTool`], [`ControlCalls`], [`EnsureStarted`], [`SetPolicy`], [`Drain`] (from clients,
//! through the registry); `ChannelEvent` (from the link); `Manage` (from [`crate::pool::sessions`], and from the
//! user).
//! Blocks on: nothing. The main thread starts and reaps processes.
//! Mailbox: [`MAILBOX`] messages; a sender waits until there is space.
//! Ends: with the daemon. Dropping their senders then answers the remaining calls.
//!
//! Invariants: every call is answered exactly once, even if the worker crashes. A call that was sent to a worker is
//! never sent again, unless that worker reports that the call was not run. Then it is sent once more.
//!
//! `quackd-supervision` makes the decisions and does no I/O. [`crate::children`] executes them for every kind of
//! process. This folder contains the parts that are specific to workers: [`calls`], [`lifecycle`], [`frames`] and the
//! background [`jobs`].

mod calls;
mod child_impl;
mod denials;
mod frames;
mod jobs;
mod lifecycle;
mod policy;

pub(crate) use crate::children::DrainReason;
pub(crate) use calls::{CallDone, CallTool, ControlCalls};
pub(crate) use lifecycle::EnsureStarted;
pub(crate) use policy::SetPolicy;

use crate::children::{Child, EvictionReason, LifecycleDriver};
use crate::pool::sessions::ProcessKind;
use crate::pool::snapshot::{Denials, StopReason};
use crate::session::owner::Owner;
use crate::session::pending_calls::PendingCalls;
use crate::session::services::SessionServices;
use crate::session::{Handles, SessionEntry};
use actix::prelude::*;
use quackd_protocol::SessionId;
use quackd_protocol::limits::UPDATE_CREDITS;
use quackd_protocol::metadata::Session;
use quackd_protocol::policy::Policy;
use quackd_protocol::worker::Hello;
use quackd_supervision::SESSION_WORKER;
use std::cell::OnceCell;
use std::rc::{Rc, Weak};
use std::time::Instant;

/// Size of the mailbox: messages of many clients of one session, and one frame at a time.
const MAILBOX: usize = 256;

/// Owner of one session's worker. Runs as an actor.
pub(crate) struct WorkerHandle {
    session: SessionId,
    name: String,
    workspace: String,
    services: Rc<SessionServices>,
    owner: Owner,
    /// Where the state is published.
    entry: Weak<SessionEntry>,
    child: Child,
    /// Hello frame of the running worker. For display only.
    hello: Option<Rc<Hello>>,
    /// Policy of the next worker.
    policy: Policy,
    /// Policy of the running worker.
    running_policy: Option<Rc<Policy>>,
    /// Whether the path of the worker's workspace leads to another directory now.
    workspace_replaced: bool,
    /// Whether the user requested a replacement even if background jobs run.
    ends_jobs: bool,
    /// Version of the login environment that the worker got.
    login_version: u64,
    calls: PendingCalls,
    idle_since: Instant,
    /// The reason why the last process ended.
    stopped: StopReason,
    /// The reason why the current process is evicted.
    evicted: Option<EvictionReason>,
    /// Number of updates that the worker may still send.
    update_credits: u32,
    jobs: jobs::ReportedJobs,
    denials: Rc<Denials>,
}

impl WorkerHandle {
    /// Starts the actor without a worker. Returns the session's entry for the table.
    pub(crate) fn start_for(
        session: &Session,
        workspace: String,
        policy: Policy,
        services: Rc<SessionServices>,
        owner: Owner,
    ) -> Rc<SessionEntry> {
        let ctx = Context::new();
        let handles = Handles { worker: ctx.address(), pi: OnceCell::new() };
        let entry = Rc::new(SessionEntry::new(session.id.clone(), handles));
        entry.manage_by(ProcessKind::Worker, ctx.address().recipient());
        ctx.run(Self::new(session, workspace, policy, services, (owner, Rc::downgrade(&entry))));
        entry
    }

    fn new(
        session: &Session,
        workspace: String,
        policy: Policy,
        services: Rc<SessionServices>,
        (owner, entry): (Owner, Weak<SessionEntry>),
    ) -> Self {
        Self {
            session: session.id.clone(),
            name: session.name.clone(),
            workspace,
            services,
            owner,
            entry,
            child: Child::new(SESSION_WORKER, session.id.0.clone()),
            hello: None,
            policy,
            running_policy: None,
            workspace_replaced: false,
            ends_jobs: false,
            login_version: 0,
            calls: PendingCalls::default(),
            idle_since: Instant::now(),
            stopped: StopReason::default(),
            evicted: None,
            update_credits: UPDATE_CREDITS,
            jobs: jobs::ReportedJobs::default(),
            denials: Rc::default(),
        }
    }
}

impl Actor for WorkerHandle {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
    }
}

/// Accept no more calls, let running calls finish until `until`, then stop the worker. The reply arrives after the
/// exit.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Drain {
    pub(crate) until: Instant,
    pub(crate) ending: DrainReason,
}

impl Handler<Drain> for WorkerHandle {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Drain { until, ending }: Drain, ctx: &mut Self::Context) -> Self::Result {
        self.child.ending = Some(ending);
        for number in self.calls.unsent() {
            self.answer(number, ctx, |_| Err(ending.refusal()));
        }
        let gone = self.kill_at(until, ctx);
        self.end_if_drained(ctx);
        Box::pin(async {
            if let Some(gone) = gone {
                // A stopped actor has no process.
                gone.await.ok();
            }
        })
    }
}

impl WorkerHandle {
    pub(super) fn end_if_drained(&mut self, ctx: &mut Context<Self>) {
        if self.child.ending.is_some() && !self.calls.any_sent() {
            self.drain(ctx);
        }
    }
}
