//! The state of a session's worker. The session's actor owns it, and the other files of this folder change it.

use super::jobs::ReportedJobs;
use super::place::Place;
use crate::children::Child;
use crate::pool::network::TransparentPorts;
use crate::pool::snapshot::Denials;
use crate::session::network::{NetworkLink, TellNetwork};
use crate::session::pending_calls::PendingCalls;
use actix::{Recipient, SpawnHandle};
use quackd_policy::hosts::SessionRules;
use quackd_protocol::SessionId;
use quackd_protocol::isolate::CopiedTree;
use quackd_protocol::limits::UPDATE_CREDITS;
use quackd_protocol::policy::Policy;
use quackd_protocol::worker::Hello;
use quackd_supervision::SESSION_WORKER;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// The worker of one session, with its calls and jobs.
pub(crate) struct WorkerPart {
    pub(in crate::session) child: Child,
    /// Hello frame of the running worker. For display only.
    pub(super) hello: Option<Rc<Hello>>,
    /// Policy of the next worker.
    pub(in crate::session) policy: Policy,
    /// The private copy of an isolated session.
    pub(in crate::session) isolated: Option<CopiedTree>,
    /// Rules of hosts.
    pub(super) rules: Arc<SessionRules>,
    /// Rules that the proxy of the running worker has.
    pub(super) told_rules: Arc<SessionRules>,
    /// The supervisor's end of the pair to the running worker, until a proxy needs it.
    pub(super) pair: Option<NetworkLink>,
    /// Owner of the running worker's proxy.
    pub(super) network: Option<Recipient<TellNetwork>>,
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
    pub(super) denials: Rc<Denials>,
}

impl WorkerPart {
    /// Creates the part without a process.
    pub(in crate::session) fn new(
        session: &SessionId,
        policy: Policy,
        rules: Arc<SessionRules>,
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
            jobs: ReportedJobs::default(),
            denials: Rc::default(),
        }
    }

    /// Sets the rules of hosts. `SessionActor::tell_rules` passes them on.
    pub(in crate::session) fn set_rules(&mut self, rules: Arc<SessionRules>) {
        self.rules = rules;
    }

    /// True if the running worker has passed on its sockets, so that a proxy can serve hosts.
    pub(super) fn has_sockets(&self) -> bool {
        self.hello.as_ref().is_some_and(|hello| hello.sandbox.hosts)
    }
}
