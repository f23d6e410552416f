//! The actor that owns the worker of one session, with its calls, its jobs and its policy. The other files of this folder
//! handle its messages.
//!
//! Receives: [`CallTool`](super::CallTool), and the messages of `calls.rs`, `policy.rs`, `network.rs` and `terminals/`
//! (from clients, through the methods and the registry); `ChannelEvent` of the worker (from its link); the requests of
//! `children/manage.rs` (from [`crate::pool::sessions`], the registry, and the user).
//! Publishes: the worker's half of the session's snapshot after each change, in the session's entry of the table.
//! Blocks on: nothing. The main thread starts and reaps processes.
//! Mailbox: [`MAILBOX`] messages; a sender waits until there is space.
//! Ends: with the daemon, or with its session. Dropping their senders then answers the remaining calls.

use super::far_link::FarLink;
use super::jobs::ReportedJobs;
use super::place::Place;
use super::terminals::Terminals;
use super::unrecorded::UnrecordedCalls;
use crate::children::Child;
use crate::pool::network::TransparentPorts;
use crate::pool::sessions::SessionEntry;
use crate::pool::snapshot::Denials;
use crate::session::identity::SessionIdentity;
use crate::session::network::{NetworkActor, NetworkLink};
use crate::session::owner::Owner;
use crate::session::pending_calls::PendingCalls;
use crate::session::services::SessionServices;
use actix::prelude::*;
use quackd_policy::hosts::SessionRules;
use quackd_protocol::isolate::CopiedTree;
use quackd_protocol::limits::UPDATE_CREDITS;
use quackd_protocol::policy::Policy;
use quackd_protocol::worker::Hello;
use quackd_supervision::SESSION_WORKER;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

/// Size of the mailbox: messages of many clients of one session, and one frame of the worker at a time.
const MAILBOX: usize = 256;

/// Facts of a session that the actor gets when it starts.
pub(in crate::session) struct WorkerStart {
    pub(in crate::session) session: Rc<SessionIdentity>,
    pub(in crate::session) services: Rc<SessionServices>,
    pub(in crate::session) owner: Owner,
    pub(in crate::session) entry: Weak<SessionEntry>,
    pub(in crate::session) policy: Policy,
    pub(in crate::session) rules: Arc<SessionRules>,
    pub(in crate::session) is_safe: bool,
    pub(in crate::session) isolated: Option<CopiedTree>,
}

/// Owner of one session's worker. Runs as an actor.
pub(crate) struct WorkerActor {
    pub(super) session: Rc<SessionIdentity>,
    pub(super) services: Rc<SessionServices>,
    pub(super) owner: Owner,
    /// Entry in the table, which has the published state.
    pub(super) entry: Weak<SessionEntry>,
    pub(super) child: Child,
    /// The link to the worker, if it is on another machine.
    pub(super) far: Option<FarLink>,
    /// Calls whose changes of files are not recorded yet.
    pub(super) checkpoints: UnrecordedCalls,
    /// Hello frame of the running worker. For display only.
    pub(super) hello: Option<Rc<Hello>>,
    /// Policy of the next worker.
    pub(super) policy: Policy,
    /// Whether the session is in safe mode now.
    pub(super) is_safe: bool,
    /// The private copy of an isolated session.
    pub(super) isolated: Option<CopiedTree>,
    /// Rules of hosts.
    pub(super) rules: Arc<SessionRules>,
    /// Rules that the proxy of the running worker has.
    pub(super) told_rules: Arc<SessionRules>,
    /// The supervisor's end of the pair to the running worker, until a proxy needs it.
    pub(super) pair: Option<NetworkLink>,
    /// Owner of the running worker's proxy.
    pub(super) network: Option<Addr<NetworkActor>>,
    /// Ports of hosts that the running worker serves for programs that use no proxy.
    pub(super) ports: TransparentPorts,
    /// Policy of the running worker.
    pub(super) running_policy: Option<Rc<Policy>>,
    /// The directory of the running worker.
    pub(super) place: Place,
    /// Whether the path of the worker's workspace leads to another directory now.
    pub(super) workspace_replaced: bool,
    /// Whether files of the host that the worker shows were replaced. It keeps its calls and jobs.
    pub(super) files_replaced: bool,
    /// Whether the rules name a host for ssh whose key the worker did not look for when it started.
    pub(super) ssh_host_added: bool,
    /// Whether no proxy will serve the worker's sockets any more.
    pub(super) network_failed: bool,
    /// Whether the user requested a replacement even if background jobs run.
    pub(super) ends_jobs: bool,
    /// Whether the client that claimed the session has disconnected, and its background jobs or calls still run.
    pub(super) client_left: bool,
    /// Version of the login environment that the worker got.
    pub(super) login_version: u64,
    pub(super) calls: PendingCalls,
    /// When the timer of the calls expires.
    pub(super) call_timer: Option<(Instant, SpawnHandle)>,
    /// Whether a timer records the long calls in the journal.
    pub(super) records_later: bool,
    pub(super) idle_since: Instant,
    /// Number of updates that the worker may still send.
    pub(super) update_credits: u32,
    pub(super) jobs: ReportedJobs,
    pub(super) terminals: Terminals,
    pub(super) denials: Rc<Denials>,
}

impl WorkerActor {
    /// Creates the actor without a process.
    pub(in crate::session) fn new(start: WorkerStart) -> Self {
        let WorkerStart { session, services, owner, entry, policy, rules, is_safe, isolated } =
            start;

        let far = FarLink::of(&session.workspace, isolated.as_ref());
        let spec = far.as_ref().map_or(SESSION_WORKER, |_| FarLink::spec());
        Self {
            child: Child::new(spec, session.id.0.clone()),
            far,
            session,
            services,
            owner,
            entry,
            checkpoints: UnrecordedCalls::default(),
            hello: None,
            policy,
            is_safe,
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
            ssh_host_added: false,
            network_failed: false,
            ends_jobs: false,
            client_left: false,
            login_version: 0,
            calls: PendingCalls::default(),
            call_timer: None,
            records_later: false,
            idle_since: Instant::now(),
            update_credits: UPDATE_CREDITS,
            jobs: ReportedJobs::default(),
            terminals: Terminals::default(),
            denials: Rc::default(),
        }
    }

    /// True if the running worker has passed on its sockets, so that a proxy can serve hosts.
    pub(super) fn has_sockets(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.sandbox.hosts)
    }
}

impl Actor for WorkerActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
    }
}
