//! The worker of a session: the part of the session's actor that runs tools.
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
mod input;
mod jobs;
mod lifecycle;
mod network;
mod place;
mod policy;

pub(crate) use calls::{CallDone, CallTool, call, command_text};

use crate::children::{Child, DrainReason, LifecycleDriver};
use crate::pool::network::TransparentPorts;
use crate::pool::snapshot::Denials;
use crate::session::actor::SessionActor;
use crate::session::network::{NetworkActor, NetworkLink};
use crate::session::pending_calls::PendingCalls;
use actix::prelude::*;
use place::Place;
use quackd_protocol::SessionId;
use quackd_protocol::isolate::CopiedTree;
use quackd_protocol::limits::UPDATE_CREDITS;
use quackd_protocol::network::Rules;
use quackd_protocol::policy::Policy;
use quackd_protocol::worker::Hello;
use quackd_supervision::SESSION_WORKER;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Selects the worker of a session's actor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfWorker;

/// The worker of one session, with its calls and jobs.
pub(crate) struct WorkerPart {
    pub(super) child: Child,
    /// Hello frame of the running worker. For display only.
    hello: Option<Rc<Hello>>,
    /// Policy of the next worker.
    pub(in crate::session) policy: Policy,
    /// The private copy of an isolated session.
    pub(in crate::session) isolated: Option<CopiedTree>,
    /// Rules of hosts.
    rules: Arc<Rules>,
    /// Rules that the proxy of the running worker has.
    told_rules: Arc<Rules>,
    /// The supervisor's end of the pair to the running worker, until a proxy needs it.
    pair: Option<NetworkLink>,
    /// Owner of the running worker's proxy.
    network: Option<Addr<NetworkActor>>,
    /// Ports of hosts that the running worker serves for programs that use no proxy.
    ports: TransparentPorts,
    /// Policy of the running worker.
    running_policy: Option<Rc<Policy>>,
    /// The directory of the running worker.
    place: Place,
    /// Whether the path of the worker's workspace leads to another directory now.
    workspace_replaced: bool,
    /// Whether files of the host that the worker shows were replaced. It keeps its calls and jobs.
    files_replaced: bool,
    /// Whether no proxy will serve the worker's sockets any more.
    network_failed: bool,
    /// Whether the user requested a replacement even if background jobs run.
    ends_jobs: bool,
    /// Whether the client that claimed the session has disconnected, and its background jobs or calls still run.
    client_left: bool,
    /// Version of the login environment that the worker got.
    login_version: u64,
    calls: PendingCalls,
    /// When the timer of the calls expires.
    call_timer: Option<(Instant, SpawnHandle)>,
    /// Whether a timer records the long calls in the journal.
    records_later: bool,
    idle_since: Instant,
    /// Number of updates that the worker may still send.
    update_credits: u32,
    jobs: jobs::ReportedJobs,
    denials: Rc<Denials>,
}

impl WorkerPart {
    /// Creates the part without a process.
    pub(super) fn new(
        session: &SessionId,
        policy: Policy,
        rules: Arc<Rules>,
        isolated: Option<CopiedTree>,
    ) -> Self {
        Self {
            child: Child::new(SESSION_WORKER, session.0.clone()),
            hello: None,
            policy,
            isolated,
            told_rules: Arc::clone(&rules),
            rules,
            pair: None,
            network: None,
            ports: TransparentPorts::default(),
            running_policy: None,
            place: Place::of(None),
            workspace_replaced: false,
            files_replaced: false,
            network_failed: false,
            ends_jobs: false,
            client_left: false,
            login_version: 0,
            calls: PendingCalls::default(),
            call_timer: None,
            records_later: false,
            idle_since: Instant::now(),
            update_credits: UPDATE_CREDITS,
            jobs: jobs::ReportedJobs::default(),
            denials: Rc::default(),
        }
    }
}

impl WorkerPart {
    /// Sets the rules of hosts. [`SessionActor::tell_rules`] passes them on.
    pub(in crate::session) fn set_rules(&mut self, rules: Arc<Rules>) {
        self.rules = rules;
    }

    /// True if the running worker has passed on its sockets, so that a proxy can serve hosts.
    fn has_sockets(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.sandbox.hosts)
    }
}

impl SessionActor {
    /// Lets the running calls finish until `until`, then stops the worker. The future ends after the exit.
    pub(super) fn drain_worker(
        &mut self,
        ending: DrainReason,
        until: Instant,
        ctx: &mut Context<Self>,
    ) -> impl Future<Output = ()> + use<> {
        for number in self.worker.calls.unsent() {
            self.answer(number, ctx, |_| Err(ending.refusal()));
        }
        let gone = self.kill_at(OfWorker, until, ctx);
        self.end_if_drained(ctx);
        async {
            if let Some(gone) = gone {
                // A stopped actor has no process.
                gone.await.ok();
            }
        }
    }

    fn end_if_drained(&mut self, ctx: &mut Context<Self>) {
        if self.worker.child.ending.is_some() && !self.worker.calls.any_sent() {
            self.drain(OfWorker, ctx);
        }
    }
}
