//! Implements [`ChildActor`] for the worker.

use super::OfWorker;
use super::frames::idle_deadline;
use crate::children::{
    ChannelLimits, Child, ChildActor, ChildKind, ChildServices, KillReason, LifecycleDriver,
    ProcessKind, Program, StopReason, WORKER,
};
use crate::errors::CallError;
use crate::pool::snapshot::{Activity, ProcessSnapshot, Stage, WorkerSnapshot};
use crate::session::actor::SessionActor;
use actix::prelude::*;
use quackd_ipc::frames;
use quackd_process::Exit as ProcessExit;
use quackd_protocol::worker::{FROM_WORKER_TAGS, FromWorker, ToWorker};
use quackd_supervision::{Cause, State};
use std::rc::Rc;
use std::time::Instant;

/// Number of unknown frames that are skipped. A neighboring version sends fewer.
const MAX_UNKNOWN: u32 = 10_000;

impl ChildKind for OfWorker {
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

    fn program(_: &ToWorker) -> Program<Self::FromChild> {
        Program { verb: WORKER, decode: |body| frames::decode(body, FROM_WORKER_TAGS) }
    }
}

impl ChildActor<OfWorker> for SessionActor {
    fn child(&self, _: OfWorker) -> &Child {
        &self.worker.child
    }

    fn child_mut(&mut self, _: OfWorker) -> &mut Child {
        &mut self.worker.child
    }

    fn services(&self, _: OfWorker) -> &ChildServices {
        &self.services.children
    }

    fn start(&mut self, _: OfWorker, ctx: &mut Context<Self>) {
        self.start_worker(ctx);
    }

    fn on_frame(&mut self, _: OfWorker, frame: FromWorker, ctx: &mut Context<Self>) {
        self.worker_frame(frame, ctx);
    }

    fn has_waiters(&self, _: OfWorker) -> bool {
        self.worker.calls.any_unsent()
    }

    fn fail_waiters(&mut self, _: OfWorker, cause: &Cause, ctx: &mut Context<Self>) {
        for number in self.worker.calls.unsent() {
            let cause = cause.clone();
            self.answer(number, ctx, |_| Err(CallError::Failed(cause)));
        }
    }

    fn on_exit(&mut self, _: OfWorker, exit: Option<ProcessExit>, ctx: &mut Context<Self>) {
        self.worker_ended(exit, ctx);
    }

    fn publish_status(&mut self, _: OfWorker) {
        let (calls, jobs) = (self.worker.calls.snapshot(), self.worker.jobs.snapshot());
        let (n_calls, n_jobs, since) = (calls.len(), jobs.len(), self.worker.idle_since);
        let until = self.unpinned_deadline();
        let activity = match self.worker.child.lifecycle.state() {
            State::Failed { cause, .. } => Activity::Failed(cause.clone()),
            _ if n_calls != 0 || n_jobs != 0 => {
                Activity::Working { calls: n_calls, jobs: n_jobs, turn: false }
            }
            State::Absent => Activity::Stopped(self.worker.child.stopped.clone()),
            State::Backoff { cause, .. } => Activity::Stopped(StopReason::Died(cause.clone())),
            State::Draining { .. } => Activity::Idle { since, until: None },
            State::Starting { .. } => Activity::Idle { since: Instant::now(), until: None },
            State::Ready { .. } => Activity::Idle { since, until },
        };
        let is_free = self.worker.child.is_ready() && n_calls == 0 && until.is_some();
        let worker = WorkerSnapshot {
            process: ProcessSnapshot {
                child: self.worker.child.snapshot(),
                stage: Stage::of(self.worker.child.lifecycle.state()),
                activity,
                free_since: is_free.then_some(since),
            },
            calls,
            jobs,
            hello: self.worker.hello.clone(),
            policy: self.worker.running_policy.clone(),
            ports: self.worker.ports.clone(),
            denials: Rc::clone(&self.worker.denials),
            pending: self.pending_change().map(Rc::new),
        };
        let table = &self.services.table;
        table.publish(&self.entry, ProcessKind::Worker, |session| session.worker = worker);
    }

    fn idle_deadline(&self, _: OfWorker) -> Option<Instant> {
        self.unpinned_deadline().filter(|_| !self.services.table.is_pinned(&self.session))
    }
}

impl SessionActor {
    /// Time at which the idle timeout ends the worker, if its session is not pinned.
    fn unpinned_deadline(&self) -> Option<Instant> {
        let limit = self.services.daemon.config.worker.idle.value;
        idle_deadline(&self.worker.calls, &self.worker.jobs, self.worker.idle_since, limit)
    }

    /// Kills a worker that violated the protocol.
    pub(super) fn worker_broke(&mut self, why: &str, ctx: &mut Context<Self>) {
        self.kill_worker(Cause::Protocol(why.to_owned()), ctx);
    }

    /// Kills a worker that violated the protocol or failed.
    pub(super) fn kill_worker(&mut self, cause: Cause, ctx: &mut Context<Self>) {
        self.kill_for(OfWorker, cause, KillReason::Failed, ctx);
    }
}
