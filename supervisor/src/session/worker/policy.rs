//! What the session's worker is confined to. A worker keeps its policy for its whole life. After a change it only gets
//! calls that [`WorkerHandle::may_send`] allows, and the next worker starts when nothing runs in it.

use super::WorkerHandle;
use crate::children::Life;
use crate::errors::RunningWork;
use actix::prelude::*;
use quackd_protocol::client::RunningJob;
use quackd_protocol::policy::Policy;
use quackd_protocol::schema;
use quackd_protocol::worker::SandboxReport;
use quackd_supervision::{Demander, State};
use std::time::Instant;

/// Tools that look at background jobs or end them. They touch no file of the workspace.
const JOB_TOOLS: [&str; 3] = ["jobs", "job_output", "job_kill"];

/// Change what the session's worker may do.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) enum UsePolicy {
    /// The policy of the next worker. A worker with another one is replaced when nothing runs in it.
    Set(Policy),
    /// Replace a worker with an older policy as soon as no call runs in it. Its background jobs end.
    EndJobs,
}

impl Handler<UsePolicy> for WorkerHandle {
    type Result = ();

    fn handle(&mut self, msg: UsePolicy, ctx: &mut Self::Context) {
        match msg {
            UsePolicy::Set(policy) if self.policy == policy => return,
            UsePolicy::Set(policy) => {
                self.policy = policy;
                self.ends_jobs = false;
                // What could not start with the old one may with this one.
                let is_failed = matches!(self.child.worker.state(), State::Failed { .. });
                if is_failed && self.child.ending.is_none() {
                    return self.demand(Demander::Attach, ctx);
                }
            }
            UsePolicy::EndJobs => self.ends_jobs = self.has_other_policy(),
        }
        self.replace_outdated(ctx);
    }
}

/// What is really in force.
#[derive(Debug)]
pub(crate) struct InForce {
    /// What the worker says, if there is one.
    pub(crate) report: Option<SandboxReport>,
    /// It was given another policy than the one that is wanted.
    pub(crate) is_outdated: bool,
    /// Why it was not replaced yet: calls and background jobs that run in it.
    pub(crate) waits_for: RunningWork,
    /// The background jobs among them.
    pub(crate) jobs: Vec<RunningJob>,
}

impl WorkerHandle {
    /// What is really in force.
    pub(super) fn in_force(&self) -> InForce {
        let is_ending = matches!(self.child.worker.state(), State::Draining { .. });
        let jobs = if is_ending { Vec::new() } else { self.jobs.describe(Instant::now()) };
        InForce {
            report: self.hello.as_ref().map(|hello| hello.sandbox.clone()),
            is_outdated: self.has_other_policy(),
            waits_for: RunningWork { calls: self.calls.sent().len(), jobs: jobs.len() },
            jobs,
        }
    }

    /// True if the running worker was given another policy than the wanted one.
    pub(super) fn has_other_policy(&self) -> bool {
        self.child.process.is_some()
            && self.given_policy.as_ref().is_some_and(|given| !given.confines_like(&self.policy))
    }

    /// True if only another worker can run commands again.
    pub(super) fn must_be_replaced(&self) -> bool {
        self.is_stale || self.has_other_policy()
    }

    /// True if the running worker may get this call. A worker with an older policy only gets tools of background jobs,
    /// and reading tools if the wanted policy allows to read all that the older one allows. A worker whose workspace was
    /// replaced refuses by itself what it cannot do safely, and is asked only if background jobs keep it.
    pub(super) fn may_send(&self, number: u64) -> bool {
        let Some(tool) = self.calls.tool(number) else { return false };
        if JOB_TOOLS.contains(&tool) {
            return true;
        }
        if !self.has_other_policy() {
            return !self.is_stale || self.jobs.any();
        }
        let given = self.given_policy.as_ref();
        !self.is_stale
            && schema::find(tool).is_some_and(|tool| tool.reads_only)
            && given.is_some_and(|given| self.policy.reads_all_of(given))
    }

    /// What the replacement of the worker waits for, for the user.
    pub(super) fn why_not_replaced(&self) -> String {
        let why = match self.is_stale {
            true => "its workspace, or a protected name in it, was replaced outside of the session",
            false => "its sandbox policy was changed",
        };
        let jobs = self.jobs.ids().join(", ");
        match jobs.is_empty() {
            true => format!("{why}, and something still runs in it"),
            false => format!("{why}, and {jobs} still runs in it; job_kill ends it"),
        }
    }

    /// Ends an idle worker that was given what is out of date by now: its policy, or the environment of its
    /// commands. Whoever wants it waits for the next one, some milliseconds. A worker with background jobs
    /// keeps both as long as they run.
    pub(super) fn replace_outdated(&mut self, ctx: &mut Context<Self>) {
        let is_free = if self.ends_jobs { !self.calls.any_sent() } else { self.is_unused() };
        if !self.child.is_ready() || !is_free {
            return;
        }
        let why = if self.is_stale {
            "its workspace is another directory by now"
        } else if self.has_other_policy() {
            "its policy was changed"
        } else if self.login_version != self.services.children.login.version() {
            "the login environment is a new one"
        } else {
            return;
        };
        tracing::info!(session = %self.session, why, "replacing a worker");
        self.retire(ctx);
    }
}
