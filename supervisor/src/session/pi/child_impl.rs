//! Implements [`ChildActor`] for the Pi handle.

use super::handle::PiHandle;
use crate::children::{
    ChannelLimits, Child, ChildActor, ChildServices, EvictionReason, KillReason, LifecycleDriver,
    Manage,
};
use crate::errors::PiError;
use actix::prelude::*;
use quackd_process::Exit as ProcessExit;
use quackd_protocol::limits::{PI_EVENTS_BURST, PI_EVENTS_PER_SECOND};
use quackd_protocol::pi::{FROM_PI_WORKER_TAGS, FromPiWorker, ToPiWorker};
use quackd_supervision::Cause;
use std::time::Instant;

/// Number of unknown frames that are skipped.
const MAX_UNKNOWN: u32 = 1_000;

impl ChildActor for PiHandle {
    type FromChild = FromPiWorker;
    type ToChild = ToPiWorker;
    const WIRE: ChannelLimits = ChannelLimits {
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

    fn on_frame(&mut self, frame: FromPiWorker, ctx: &mut Context<Self>) {
        self.frame(frame, ctx);
    }

    fn has_waiters(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn on_already_running(&mut self, ctx: &mut Context<Self>) {
        self.flush(ctx);
    }

    fn fail_waiters(&mut self, cause: &Cause, _: &mut Context<Self>) {
        self.refuse_unsent(&PiError::Failed(cause.clone()));
    }

    fn on_kill(&mut self, why: KillReason) {
        self.kill_reason.get_or_insert(why);
    }

    fn on_exit(&mut self, exit: Option<ProcessExit>, ctx: &mut Context<Self>) {
        self.on_reaped(exit, ctx);
    }

    fn on_channel_closed(&mut self, ctx: &mut Context<Self>) {
        self.finish(ctx);
    }

    fn publish_status(&mut self) {
        self.show();
    }

    fn idle_deadline(&self) -> Option<Instant> {
        let is_busy = self.is_busy() || self.end.is_some();
        if is_busy || self.services.table.is_pinned(&self.session) {
            return None;
        }
        Some(self.active + self.services.daemon.config.worker.idle.value)
    }

    fn on_evicted(&mut self, why: EvictionReason) {
        self.evicted = Some(why);
        self.services.table.count_eviction();
    }
}

impl Handler<Manage> for PiHandle {
    type Result = bool;

    fn handle(&mut self, msg: Manage, ctx: &mut Self::Context) -> bool {
        // The Pi may have become busy since it was chosen.
        self.show();
        self.manage(msg, ctx)
    }
}
