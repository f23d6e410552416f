//! A session's Pi worker as one of the supervisor's children: what [`crate::children`] asks of it.

use super::handle::PiHandle;
use crate::children::{Child, ChildServices, Eviction, Life, Manage, Supervised, Wire};
use crate::errors::PiError;
use actix::prelude::*;
use quackd_process::Exit as ProcessExit;
use quackd_protocol::limits::{PI_EVENTS_BURST, PI_EVENTS_PER_SECOND};
use quackd_protocol::pi::{FROM_PI_WORKER_TAGS, FromPiWorker, ToPiWorker};
use quackd_supervision::Cause;
use std::time::Instant;

/// Frames of another version that are skipped.
const MAX_UNKNOWN: u32 = 1_000;

impl Supervised for PiHandle {
    type Says = FromPiWorker;
    type Told = ToPiWorker;
    const WIRE: Wire = Wire {
        tags: FROM_PI_WORKER_TAGS,
        max_unknown: MAX_UNKNOWN,
        pace: Some((PI_EVENTS_BURST, PI_EVENTS_PER_SECOND)),
    };
    const VERB: &'static str = "pi-worker";

    fn child(&self) -> &Child {
        &self.child
    }

    fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    fn services(&self) -> &ChildServices {
        &self.services.children
    }

    fn ping(seq: u64) -> ToPiWorker {
        ToPiWorker::Ping { seq }
    }

    fn shutdown() -> ToPiWorker {
        ToPiWorker::Shutdown {}
    }

    fn start(&mut self, ctx: &mut Context<Self>) {
        self.start_worker(ctx);
    }

    fn is_wanted(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn is_there(&mut self, ctx: &mut Context<Self>) {
        self.flush(ctx);
    }

    fn refuse(&mut self, cause: &Cause, _: &mut Context<Self>) {
        self.refuse_unsent(&PiError::Failed(cause.clone()));
    }

    fn condemned(&mut self, why: &'static str) {
        self.condemned.get_or_insert(why);
    }

    fn reaped(&mut self, exit: Option<ProcessExit>, ctx: &mut Context<Self>) {
        self.was_reaped(exit, ctx);
    }

    fn fell_silent(&mut self, ctx: &mut Context<Self>) {
        self.finish(ctx);
    }

    fn changed(&mut self) {
        self.show();
    }

    fn idle_until(&self) -> Option<Instant> {
        let is_busy = self.view.is_busy.get() || self.end.is_some();
        if is_busy || self.services.pool.statuses.is_pinned(&self.session) {
            return None;
        }
        Some(self.view.active.get() + self.services.daemon.config.worker.idle.value)
    }

    fn evicted(&mut self, why: Eviction) {
        self.evicted = Some(why);
        self.services.pool.workers.count_eviction();
    }
}

impl Handler<Manage> for PiHandle {
    type Result = bool;

    fn handle(&mut self, msg: Manage, ctx: &mut Self::Context) -> bool {
        // It may have got work since it was chosen.
        self.show();
        self.manage(msg, ctx)
    }
}
