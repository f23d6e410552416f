//! Implements [`ChildActor`] for the worker handle.

use super::WorkerHandle;
use super::frames::idle_deadline;
use crate::children::spawner::WORKER;
use crate::children::{
    ChannelLimits, Child, ChildActor, ChildServices, EvictionReason, KillReason, LifecycleDriver,
    Manage,
};
use crate::errors::CallError;
use crate::pool::sessions::ProcessKind;
use crate::pool::snapshot::{Activity, ProcessSnapshot, Stage, StopReason, WorkerSnapshot};
use actix::prelude::*;
use quackd_process::Exit as ProcessExit;
use quackd_protocol::worker::{FROM_WORKER_TAGS, FromWorker, ToWorker};
use quackd_supervision::{Cause, State};
use std::rc::Rc;
use std::time::Instant;

/// Number of unknown frames that are skipped. A neighboring version sends fewer.
const MAX_UNKNOWN: u32 = 10_000;

impl ChildActor for WorkerHandle {
    type FromChild = FromWorker;
    type ToChild = ToWorker;
    const WIRE: ChannelLimits =
        ChannelLimits { tags: FROM_WORKER_TAGS, max_unknown: MAX_UNKNOWN, pace: None };
    const VERB: &'static str = WORKER;

    fn child(&self) -> &Child {
        &self.child
    }

    fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    fn services(&self) -> &ChildServices {
        &self.services.children
    }

    fn ping(seq: u64) -> ToWorker {
        ToWorker::Ping { seq }
    }

    fn shutdown() -> ToWorker {
        ToWorker::Shutdown {}
    }

    fn start(&mut self, ctx: &mut Context<Self>) {
        self.start_worker(ctx);
    }

    fn on_frame(&mut self, frame: FromWorker, ctx: &mut Context<Self>) {
        self.frame(frame, ctx);
    }

    fn has_waiters(&self) -> bool {
        self.calls.any_unsent()
    }

    fn fail_waiters(&mut self, cause: &Cause, ctx: &mut Context<Self>) {
        for number in self.calls.unsent() {
            let cause = cause.clone();
            self.answer(number, ctx, |_| Err(CallError::Failed(cause)));
        }
    }

    fn on_exit(&mut self, exit: Option<ProcessExit>, ctx: &mut Context<Self>) {
        self.ended(exit, ctx);
    }

    fn publish_status(&mut self) {
        let (calls, jobs) = (self.calls.snapshot(), self.jobs.snapshot());
        let (n_calls, n_jobs, since) = (calls.len(), jobs.len(), self.idle_since);
        let until = self.unpinned_deadline();
        let activity = match self.child.worker.state() {
            State::Failed { cause, .. } => Activity::Failed(cause.clone()),
            _ if n_calls != 0 || n_jobs != 0 => {
                Activity::Working { calls: n_calls, jobs: n_jobs, turn: false }
            }
            State::Absent => Activity::Stopped(self.stopped.clone()),
            State::Backoff { cause, .. } => Activity::Stopped(StopReason::Died(cause.clone())),
            State::Draining { .. } => Activity::Idle { since, until: None },
            State::Starting { .. } => Activity::Idle { since: Instant::now(), until: None },
            State::Ready { .. } => Activity::Idle { since, until },
        };
        let is_free = self.child.is_ready() && n_calls == 0 && until.is_some();
        let worker = WorkerSnapshot {
            process: ProcessSnapshot {
                child: self.child.snapshot(),
                stage: Stage::of(self.child.worker.state()),
                activity,
                free_since: is_free.then_some(since),
            },
            calls,
            jobs,
            hello: self.hello.clone(),
            policy: self.running_policy.clone(),
            denials: Rc::clone(&self.denials),
        };
        let table = &self.services.table;
        table.publish(&self.entry, ProcessKind::Worker, |session| session.worker = worker);
    }

    fn idle_deadline(&self) -> Option<Instant> {
        self.unpinned_deadline().filter(|_| !self.services.table.is_pinned(&self.session))
    }

    fn on_evicted(&mut self, why: EvictionReason) {
        self.evicted = Some(why);
        self.services.table.count_eviction();
    }
}

impl WorkerHandle {
    /// Time at which the idle timeout ends the worker, if its session is not pinned.
    fn unpinned_deadline(&self) -> Option<Instant> {
        let limit = self.services.daemon.config.worker.idle.value;
        idle_deadline(&self.calls, &self.jobs, self.idle_since, limit)
    }

    /// Kills a worker that violated the protocol or failed.
    pub(super) fn kill_for_cause(&mut self, cause: Cause, ctx: &mut Context<Self>) {
        self.kill_for(cause, KillReason::Failed, ctx);
    }
}

impl Handler<Manage> for WorkerHandle {
    type Result = bool;

    fn handle(&mut self, msg: Manage, ctx: &mut Self::Context) -> bool {
        let is_eviction = matches!(msg, Manage::Evict(_));
        // A call that waits for this worker arrived after the worker was chosen.
        let applied = !(is_eviction && self.calls.len() != 0) && self.manage(msg, ctx);
        if is_eviction {
            self.publish_status();
        }
        applied
    }
}
