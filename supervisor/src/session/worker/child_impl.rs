//! A session's worker as one of the supervisor's children: what [`crate::children`] asks of it.

use super::WorkerHandle;
use super::frames::idle_until;
use crate::children::spawner::WORKER;
use crate::children::{Child, ChildServices, Eviction, Life, Manage, Supervised, Wire};
use crate::errors::CallError;
use crate::pool::session_status::{Doing, Stopped};
use crate::pool::worker_pool::Stage;
use actix::prelude::*;
use quackd_process::Exit as ProcessExit;
use quackd_protocol::worker::{FROM_WORKER_TAGS, FromWorker, ToWorker};
use quackd_supervision::{Cause, State};
use std::time::Instant;

/// Frames of another version: a worker that sends more than a neighbouring version ever would is ended.
const MAX_UNKNOWN: u32 = 10_000;

impl Supervised for WorkerHandle {
    type Says = FromWorker;
    type Told = ToWorker;
    const WIRE: Wire = Wire { tags: FROM_WORKER_TAGS, max_unknown: MAX_UNKNOWN, pace: None };
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

    fn is_wanted(&self) -> bool {
        self.calls.any_unsent()
    }

    fn refuse(&mut self, cause: &Cause, ctx: &mut Context<Self>) {
        for number in self.calls.unsent() {
            let cause = cause.clone();
            self.answer(number, ctx, |_| Err(CallError::Failed(cause)));
        }
    }

    fn reaped(&mut self, exit: Option<ProcessExit>, ctx: &mut Context<Self>) {
        self.ended(exit, ctx);
    }

    fn changed(&mut self) {
        let (calls, jobs) = (self.calls.len(), self.jobs.count());
        let until = self.idle_until();
        let doing = match self.child.worker.state() {
            State::Failed { cause, .. } => Doing::Failed(cause.to_string()),
            _ if calls != 0 || jobs != 0 => Doing::Working { calls, jobs, turn: false },
            State::Absent => Doing::Stopped(self.stopped.clone()),
            State::Backoff { cause, .. } => Doing::Stopped(Stopped::Died(cause.to_string())),
            State::Draining { .. } => Doing::Idle { since: self.idle_since, until: None },
            State::Starting { .. } => Doing::Idle { since: Instant::now(), until: None },
            State::Ready { .. } => Doing::Idle { since: self.idle_since, until },
        };
        let is_free = self.child.is_ready() && calls == 0 && until.is_some();
        let stage = match self.child.worker.state() {
            State::Absent | State::Backoff { .. } | State::Failed { .. } => Stage::Gone,
            State::Draining { .. } => Stage::Leaving,
            State::Starting { .. } | State::Ready { .. } => Stage::Here,
        };
        let free_since = is_free.then_some(self.idle_since);
        let monitor = self.child.monitor_pid();
        self.services.pool.workers.set(&self.session, stage, free_since, monitor);
        self.services.pool.statuses.set_worker(&self.session, doing);
    }

    fn idle_until(&self) -> Option<Instant> {
        if self.services.pool.statuses.is_pinned(&self.session) {
            return None;
        }
        let limit = self.services.daemon.config.worker.idle.value;
        idle_until(&self.calls, &self.jobs, self.idle_since, limit)
    }

    fn evicted(&mut self, why: Eviction) {
        self.evicted = Some(why);
        self.services.pool.workers.count_eviction();
    }
}

impl WorkerHandle {
    /// Ends a worker that is of no use any more.
    pub(super) fn condemn(&mut self, cause: Cause, ctx: &mut Context<Self>) {
        self.end_for(cause, "it cannot be trusted any more", ctx);
    }
}

impl Handler<Manage> for WorkerHandle {
    type Result = bool;

    fn handle(&mut self, msg: Manage, ctx: &mut Self::Context) -> bool {
        let is_eviction = matches!(msg, Manage::Evict(_));
        // A call that waits for this worker came after it was chosen.
        let applied = !(is_eviction && self.calls.len() != 0) && self.manage(msg, ctx);
        if is_eviction {
            self.changed();
        }
        applied
    }
}
