//! What the session's worker is confined to. A worker keeps its policy for its whole life; after a change
//! no more calls are sent to it, and the next one starts when nothing runs in it any more.

use super::WorkerHandle;
use crate::child::Life;
use actix::prelude::*;
use quackd_protocol::policy::Policy;
use quackd_protocol::worker::SandboxReport;
use quackd_supervision::{Demander, State};

/// From now on this is in force.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct UsePolicy(pub(crate) Policy);

impl Handler<UsePolicy> for WorkerHandle {
    type Result = ();

    fn handle(&mut self, UsePolicy(policy): UsePolicy, ctx: &mut Self::Context) {
        if self.policy == policy {
            return;
        }
        self.policy = policy;
        // What could not start with the old one may with this one.
        let is_failed = matches!(self.child.worker.state(), State::Failed { .. });
        if is_failed && self.child.ending.is_none() {
            return self.demand(Demander::Attach, ctx);
        }
        self.replace_outdated(ctx);
    }
}

/// What is really in force.
#[derive(Debug, Message)]
#[rtype(result = "InForce")]
pub(crate) struct ReportPolicy;

/// See [`ReportPolicy`].
#[derive(Debug)]
pub(crate) struct InForce {
    /// What the worker says, if there is one.
    pub(crate) report: Option<SandboxReport>,
    /// It was given another policy than the one that is wanted.
    pub(crate) is_outdated: bool,
    /// Why it was not replaced yet: calls and background jobs that run in it.
    pub(crate) waits_for: super::RunningWork,
}

impl Handler<ReportPolicy> for WorkerHandle {
    type Result = MessageResult<ReportPolicy>;

    fn handle(&mut self, _: ReportPolicy, _: &mut Self::Context) -> Self::Result {
        MessageResult(InForce {
            report: self.hello.as_ref().map(|hello| hello.sandbox.clone()),
            is_outdated: self.has_other_policy(),
            waits_for: super::RunningWork {
                calls: self.calls.sent().len(),
                jobs: self.jobs.count(),
            },
        })
    }
}

impl WorkerHandle {
    /// Whether the worker that there is was given another policy than the one that is wanted.
    pub(super) fn has_other_policy(&self) -> bool {
        self.child.process.is_some()
            && self.given_policy.as_ref().is_some_and(|given| !given.confines_like(&self.policy))
    }

    /// Ends an idle worker that was given what is out of date by now: its policy, or the environment of its
    /// commands. Whoever wants it waits for the next one, some milliseconds. A worker with background jobs
    /// keeps both as long as they run.
    pub(super) fn replace_outdated(&mut self, ctx: &mut Context<Self>) {
        if !self.child.is_ready() || !self.is_unused() {
            return;
        }
        let why = if self.is_stale {
            "its workspace is another directory by now"
        } else if self.has_other_policy() {
            "its policy was changed"
        } else if self.login_version != self.services.login.version() {
            "the login environment is a new one"
        } else {
            return;
        };
        tracing::info!(session = %self.session, why, "replacing a worker");
        self.retire(ctx);
    }
}
