//! The policy of the session's worker. A worker keeps its confinement until it exits. After a change of it, the worker only
//! gets calls that [`WorkerActor::may_send`] allows, and the next one starts when it is idle.

use super::actor::WorkerActor;
use crate::children::{ChildActor, LifecycleDriver};
use crate::platform::HAS_NAMESPACES;
use actix::prelude::*;
use quackd_policy::hosts::SessionRules;
use quackd_policy::{allows_all_of, confines_like, reads_all_of};
use quackd_protocol::client::PendingChange;
use quackd_protocol::denial::of_session;
use quackd_protocol::isolate::CopiedTree;
use quackd_protocol::policy::Policy;
use quackd_protocol::worker::ToWorker;
use quackd_supervision::{Demander, State};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Most commands that are named to end what keeps a worker.
const MAX_REMEDIES: usize = 4;

/// The policy of the next worker. A worker with another policy is replaced when nothing runs in it. The rules of hosts and
/// safe mode apply at once.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct SetPolicy {
    pub(crate) policy: Policy,
    pub(crate) rules: Arc<SessionRules>,
    pub(crate) is_safe: bool,
}

impl Handler<SetPolicy> for WorkerActor {
    type Result = ();

    fn handle(&mut self, msg: SetPolicy, ctx: &mut Self::Context) {
        let SetPolicy { policy, rules, is_safe } = msg;
        let is_local = self.far.is_none();
        let has_agent =
            is_local && HAS_NAMESPACES && !policy.network && self.services.serves_ssh_agent();
        self.ssh_host_added |= has_agent && rules.hosts().adds_ssh_host(self.rules.hosts());
        (self.rules, self.is_safe) = (rules, is_safe);
        self.set_policy(policy, ctx);
        self.tell_rules();
    }
}

/// The session's copy was made again, and a start may succeed in it that failed before. A running worker has the old copy
/// and must have been stopped.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct SetIsolated(pub(crate) CopiedTree);

impl Handler<SetIsolated> for WorkerActor {
    type Result = ();

    fn handle(&mut self, SetIsolated(copied): SetIsolated, ctx: &mut Self::Context) {
        self.isolated = Some(copied);
        self.start_again(ctx);
    }
}

/// Replace a worker with an older policy as soon as no call runs in it. Its background jobs end.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct EndJobs;

impl Handler<EndJobs> for WorkerActor {
    type Result = ();

    fn handle(&mut self, _: EndJobs, ctx: &mut Self::Context) {
        self.ends_jobs = self.has_other_policy();
        self.restart_if_outdated(ctx);
    }
}

/// The client that claimed the session has disconnected. End the background jobs, after the running calls.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct ClientLeft;

impl Handler<ClientLeft> for WorkerActor {
    type Result = ();

    fn handle(&mut self, _: ClientLeft, ctx: &mut Self::Context) {
        self.client_left = !self.is_unused();
        self.restart_if_outdated(ctx);
    }
}

impl WorkerActor {
    fn set_policy(&mut self, policy: Policy, ctx: &mut Context<Self>) {
        if self.policy == policy {
            return;
        }
        self.policy = policy;
        self.ends_jobs = false;
        self.tell_network_mode();
        // A start that failed with the old policy may succeed with the new one.
        if !self.start_again(ctx) {
            self.restart_if_outdated(ctx);
            self.publish_status();
        }
    }

    /// Starts a worker that failed. Returns false if it did not.
    fn start_again(&mut self, ctx: &mut Context<Self>) -> bool {
        let child = &self.child;
        let is_failed = matches!(child.lifecycle.state(), State::Failed { .. });
        let starts = is_failed && child.ending.is_none();
        if starts {
            self.demand(Demander::Attach, ctx);
        }
        starts
    }
}

impl WorkerActor {
    /// Tells a worker that keeps running whether its network is off or limited to hosts.
    pub(super) fn tell_network_mode(&mut self) {
        let Self { child, running_policy, policy, .. } = &*self;
        let mode = policy.network_mode();
        let has_other = running_policy.as_ref().is_some_and(|given| given.network_mode() != mode);
        if !has_other || !child.is_ready() || self.has_other_policy() {
            return;
        }
        // The heartbeat kills a worker that does not read.
        child.try_send(&ToWorker::NetworkMode { mode }).ok();
        self.running_policy = Some(Rc::new(policy.clone()));
        self.publish_status();
    }

    /// True if the running worker's policy differs from the requested one. A list of hosts that names a port without a
    /// listener needs another worker, unless this one is in use: its proxy serves the port too.
    pub(super) fn has_other_policy(&self) -> bool {
        let Self { child, running_policy, policy, ports, rules, .. } = self;
        let has_proxy = self.has_sockets() && (!self.is_unused() || ports.serve(rules));
        let given = running_policy.as_ref();
        child.process.is_some()
            && given.is_some_and(|given| !confines_like(given, policy, has_proxy))
    }

    /// True if background jobs run whose client has disconnected.
    fn has_left_jobs(&self) -> bool {
        self.client_left && self.jobs.any()
    }

    /// True if commands need a new worker.
    pub(super) fn needs_replacement(&self) -> bool {
        let Self { workspace_replaced, files_replaced, network_failed, .. } = *self;
        workspace_replaced
            || files_replaced
            || network_failed
            || self.has_other_policy()
            || self.has_left_jobs()
    }

    /// True if background jobs keep a worker whose policy allows no more than the requested one. A running server would
    /// otherwise refuse every command after the user has allowed a host.
    fn is_kept_with_less(&self) -> bool {
        let Self { jobs, workspace_replaced, ends_jobs, .. } = self;
        self.is_less_than_wanted() && jobs.any() && !workspace_replaced && !ends_jobs
    }

    /// True if the running worker's policy allows no more than the requested one.
    pub(super) fn is_less_than_wanted(&self) -> bool {
        let Self { running_policy, policy, .. } = self;
        running_policy.as_ref().is_some_and(|given| allows_all_of(policy, given))
    }

    /// Returns the line for a command that was denied something in a worker with an older policy.
    pub(super) fn line_about_older_policy(&self) -> Option<String> {
        if !self.has_other_policy() || !self.is_kept_with_less() {
            return None;
        }
        let jobs = self.jobs.ids();
        let first = jobs.first()?;
        Some(format!(
            "[Sandbox: the permissions of this session have changed since {0} was started, and are in force when it has \
             ended: quack jobs kill {first} --session {1}]",
            jobs.join(", "),
            self.session.label
        ))
    }

    /// True if the running worker may get this call. A worker with an older policy only gets tools for background jobs,
    /// unless it allows no more than the requested policy. It also gets reading tools if the requested policy allows all reads that the older one allows. A worker whose
    /// workspace was replaced refuses unsafe calls itself, and only gets calls while background jobs keep it.
    pub(super) fn may_send(&self, number: u64) -> bool {
        let Some(call) = self.calls.get(number) else { return false };
        // Internal tools report on the permissions that the user has set.
        let tool = call.row.filter(|tool| !tool.is_internal());
        if tool.is_some_and(|tool| tool.is_job_tool) {
            return true;
        }

        if self.waits_for_state(number) {
            return false;
        }
        if self.has_left_jobs() || self.place.is_checking || self.place.is_moved {
            return false;
        }

        if !self.has_other_policy() {
            return !self.workspace_replaced || self.jobs.any();
        }
        if self.is_kept_with_less() {
            return true;
        }

        let given = self.running_policy.as_ref();
        !self.workspace_replaced
            && tool.is_some_and(|tool| tool.reads_only)
            && given.is_some_and(|given| reads_all_of(&self.policy, given))
    }

    /// The reason why commands need a new worker.
    fn why_replaced(&self) -> &'static str {
        match self.workspace_replaced {
            _ if self.has_left_jobs() => "its client disconnected",
            true if self.place.has_other_mounts => {
                "a file system was mounted or unmounted in its workspace, and it sees the old content"
            }
            true => "its workspace, or a protected name in it, was replaced outside of the session",
            false if self.has_other_policy() => "its sandbox policy was changed",
            false if self.network_failed => "its network proxy failed",
            false if self.files_replaced => {
                "files of the system were replaced, and it sees the old ones"
            }
            false => "its network proxy failed",
        }
    }

    /// Handles the worker's report that a call was not run because it shows files of the host that were replaced. The next
    /// worker gets the call, unless other calls or jobs keep this one: then this one gets it once more, because old files
    /// are no reason to wait. Returns false if the call gets the worker's reply.
    pub(super) fn send_after_replacement(&mut self, number: u64, ctx: &mut Context<Self>) -> bool {
        if !self.calls.take_back(number) {
            return false;
        }
        self.files_replaced = true;
        if self.child.ending.is_none() && self.is_unused() {
            self.await_worker(number, ctx);
            self.note_idle(ctx);
        } else {
            self.send(number, ctx);
            self.publish_status();
        }
        true
    }

    /// The reason why the worker was not replaced yet, and the way to end what keeps it, for display.
    pub(super) fn why_not_replaced(&self) -> String {
        let Some(PendingChange { why, jobs, remedy, .. }) = self.pending_change() else {
            return format!("{}, and the last one is ending", self.why_replaced());
        };
        let jobs = jobs.into_iter();
        let runs = self.running_calls().into_iter().chain(jobs).collect::<Vec<_>>().join(", ");
        let tool = if self.jobs.any() { "job_kill ends jobs, or " } else { "" };
        format!("{why}, and {runs} still runs in it; {tool}{remedy}")
    }

    /// Tools of the calls that a worker has, with their age.
    fn running_calls(&self) -> Vec<String> {
        let now = Instant::now();
        let calls = self.calls.snapshot().into_iter().filter(|call| call.is_sent);
        let age = |since: Instant| now.saturating_duration_since(since).as_secs();
        calls.map(|call| format!("{} (for {} s)", call.tool, age(call.since))).collect()
    }

    /// The change that waits for calls or jobs of the running worker.
    pub(super) fn pending_change(&self) -> Option<PendingChange> {
        let calls = self.calls.sent().len();
        let jobs: Vec<_> = self.jobs.ids().into_iter().map(str::to_owned).collect();
        if !self.child.is_ready() || calls == 0 && jobs.is_empty() || !self.needs_replacement() {
            return None;
        }
        let of = of_session(&self.session.label);
        let of_calls = (calls != 0).then(|| format!("quack abort{of}"));
        let of_jobs = jobs.iter().map(|job| format!("quack jobs kill {job}{of}"));
        let remedy = of_calls.into_iter().chain(of_jobs).take(MAX_REMEDIES);
        let remedy = remedy.collect::<Vec<_>>().join("; ");
        Some(PendingChange { why: self.why_replaced().to_owned(), calls, jobs, remedy })
    }

    /// Drains an idle worker with an outdated policy, login environment or workspace. New calls wait a few milliseconds
    /// for the next worker. Background jobs delay the replacement.
    pub(super) fn restart_if_outdated(&mut self, ctx: &mut Context<Self>) {
        let ends_jobs = self.ends_jobs || self.client_left;
        let is_free = if ends_jobs { !self.calls.any_sent() } else { self.is_unused() };
        if !self.child.is_ready() || !is_free {
            return;
        }

        let why = if self.place.has_other_mounts {
            "the mounts in its workspace changed"
        } else if self.workspace_replaced {
            "its workspace was replaced"
        } else if self.has_left_jobs() {
            "its client disconnected"
        } else if self.has_other_policy() {
            "its policy was changed"
        } else if self.network_failed {
            "its network proxy failed"
        } else if self.files_replaced {
            "files of the system were replaced"
        } else if self.ssh_host_added {
            "its rules name another host for ssh"
        } else if self.far.is_none() && self.login_version != self.services.children.login.version()
        {
            "the login environment changed"
        } else {
            return;
        };

        tracing::info!(session = %self.session.id, why, "replacing a worker");
        self.drain(ctx);
    }
}
