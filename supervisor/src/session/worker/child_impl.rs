//! Implements [`ChildActor`] for the worker.

use super::actor::WorkerActor;
use super::frames::idle_deadline;
use crate::children::{
    ChannelLimits, Child, ChildActor, ChildKind, ChildServices, Evict, Kill, KillReason, LINK,
    LifecycleDriver, ManageDriver, MemoryLimitExceeded, ProcessKind, Program, ResetTimers, Settle,
    StopReason, WORKER,
};
use crate::errors::CallError;
use crate::pool::snapshot::{Activity, ProcessSnapshot, Stage, WorkerSnapshot};
use actix::prelude::*;
use quackd_ipc::frames;
use quackd_protocol::worker::{FROM_WORKER_TAGS, FromWorker, ToWorker};
use quackd_supervision::{Cause, Exit, State};
use std::rc::Rc;
use std::time::Instant;

/// Number of unknown frames that are skipped. A neighboring version sends fewer.
const MAX_UNKNOWN: u32 = 10_000;

impl ChildKind for WorkerActor {
    type FromChild = FromWorker;
    type ToChild = ToWorker;
    const WIRE: ChannelLimits = ChannelLimits { max_unknown: MAX_UNKNOWN, pace: None };
    const NAME: &'static str = WORKER;

    fn ping(seq: u64) -> ToWorker {
        ToWorker::Ping { seq }
    }

    fn shutdown() -> ToWorker {
        ToWorker::Shutdown {}
    }

    fn program(start: &ToWorker) -> Program<Self::FromChild> {
        let is_far = matches!(start, ToWorker::Start(start) if start.far.is_some());
        let verb = if is_far { LINK } else { WORKER };
        Program { verb, decode: |body| frames::decode(body, FROM_WORKER_TAGS) }
    }
}

impl ChildActor for WorkerActor {
    fn child(&self) -> &Child {
        &self.child
    }

    fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    fn services(&self) -> &ChildServices {
        &self.services.children
    }

    fn start(&mut self, ctx: &mut Context<Self>) {
        self.start_worker(ctx);
    }

    fn on_frame(&mut self, frame: FromWorker, ctx: &mut Context<Self>) {
        self.worker_frame(frame, ctx);
    }

    fn silence(&self) -> Cause {
        self.cause_of_silence()
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

    fn on_exit(&mut self, exit: Option<Exit>, ctx: &mut Context<Self>) {
        self.worker_ended(exit, ctx);
    }

    fn publish_status(&mut self) {
        let (calls, jobs) = (self.calls.snapshot(), self.jobs.snapshot());
        let (n_calls, n_jobs, since) = (calls.len(), jobs.len(), self.idle_since);
        let until = self.unpinned_deadline();

        let activity = match self.child.lifecycle.state() {
            State::Failed { cause, .. } => Activity::Failed(cause.clone()),
            _ if n_calls != 0 || n_jobs != 0 => {
                Activity::Working { calls: n_calls, jobs: n_jobs, turn: false }
            }
            State::Absent => Activity::Stopped(self.child.stopped.clone()),
            State::Backoff { cause, .. } => Activity::Stopped(StopReason::Died(cause.clone())),
            State::Draining { .. } => Activity::Idle { since, until: None },
            State::Starting { .. } => Activity::Idle { since: Instant::now(), until: None },
            State::Ready { .. } => Activity::Idle { since, until },
        };

        let is_free = self.child.is_ready() && n_calls == 0 && until.is_some();
        let worker = WorkerSnapshot {
            process: ProcessSnapshot {
                child: self.child.snapshot(),
                stage: Stage::of(self.child.lifecycle.state()),
                activity,
                free_since: is_free.then_some(since),
            },
            calls,
            jobs,
            hello: self.hello.clone(),
            policy: self.running_policy.clone(),
            ports: self.ports.clone(),
            denials: Rc::clone(&self.denials),
            pending: self.pending_change().map(Rc::new),
            is_far: self.far.is_some(),
            link: self.link_notice(),
        };

        let table = &self.services.table;
        table.publish(&self.entry, ProcessKind::Worker, |session| session.worker = worker);
    }

    fn idle_deadline(&self) -> Option<Instant> {
        self.unpinned_deadline().filter(|_| !self.services.table.is_pinned(&self.session.id))
    }
}

impl WorkerActor {
    /// Time at which the idle timeout ends the worker, if its session is not pinned.
    fn unpinned_deadline(&self) -> Option<Instant> {
        let limit = self.services.daemon.config.worker.idle.value;
        idle_deadline(&self.calls, &self.jobs, self.idle_since, limit)
    }

    /// Kills a worker that violated the protocol.
    pub(super) fn worker_broke(&mut self, why: &str, ctx: &mut Context<Self>) {
        self.kill_worker(Cause::Protocol(why.to_owned()), ctx);
    }

    /// Kills a worker that violated the protocol or failed.
    pub(super) fn kill_worker(&mut self, cause: Cause, ctx: &mut Context<Self>) {
        self.kill_for(cause, KillReason::Failed, ctx);
    }
}

impl Handler<Evict> for WorkerActor {
    type Result = bool;

    fn handle(&mut self, Evict(why): Evict, ctx: &mut Self::Context) -> bool {
        // A call that waits for this worker arrived after the worker was chosen.
        if self.has_calls() {
            self.publish_status();
            return false;
        }
        self.on_evict(why, ctx)
    }
}

impl Handler<Kill> for WorkerActor {
    type Result = bool;

    fn handle(&mut self, _: Kill, ctx: &mut Self::Context) -> bool {
        self.kill(ctx)
    }
}

impl Handler<MemoryLimitExceeded> for WorkerActor {
    type Result = ();

    fn handle(&mut self, exceeded: MemoryLimitExceeded, ctx: &mut Self::Context) {
        self.on_memory_exceeded(exceeded, ctx);
    }
}

impl Handler<ResetTimers> for WorkerActor {
    type Result = ();

    fn handle(&mut self, _: ResetTimers, ctx: &mut Self::Context) {
        self.reset_timers(ctx);
    }
}

impl Handler<Settle> for WorkerActor {
    type Result = ();

    fn handle(&mut self, _: Settle, _: &mut Self::Context) {}
}
