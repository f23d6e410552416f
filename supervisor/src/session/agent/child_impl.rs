//! Implements [`ChildActor`] for Pi.

use super::OfPi;
use crate::children::{ChannelLimits, Child, ChildActor, ChildKind, ChildServices, KillReason};
use crate::errors::PiError;
use crate::session::actor::SessionActor;
use actix::prelude::*;
use quackd_process::Exit as ProcessExit;
use quackd_protocol::limits::{PI_EVENTS_BURST, PI_EVENTS_PER_SECOND};
use quackd_protocol::pi::{FROM_PI_WORKER_TAGS, FromPiWorker, ToPiWorker};
use quackd_supervision::Cause;
use std::time::Instant;

/// Number of unknown frames that are skipped.
const MAX_UNKNOWN: u32 = 1_000;

impl ChildKind for OfPi {
    type FromChild = FromPiWorker;
    type ToChild = ToPiWorker;
    const WIRE: ChannelLimits = ChannelLimits {
        tags: FROM_PI_WORKER_TAGS,
        max_unknown: MAX_UNKNOWN,
        pace: Some((PI_EVENTS_BURST, PI_EVENTS_PER_SECOND)),
    };
    const VERB: &'static str = "pi-worker";

    fn ping(seq: u64) -> ToPiWorker {
        ToPiWorker::Ping { seq }
    }

    fn shutdown() -> ToPiWorker {
        ToPiWorker::Shutdown {}
    }

    fn verb(start: &ToPiWorker) -> &'static str {
        match start {
            ToPiWorker::StartAgent(_) => "agent-worker",
            _ => Self::VERB,
        }
    }
}

impl ChildActor<OfPi> for SessionActor {
    fn child(&self, _: OfPi) -> &Child {
        &self.pi.child
    }

    fn child_mut(&mut self, _: OfPi) -> &mut Child {
        &mut self.pi.child
    }

    fn services(&self, _: OfPi) -> &ChildServices {
        &self.services.children
    }

    fn start(&mut self, _: OfPi, ctx: &mut Context<Self>) {
        self.start_pi(ctx);
    }

    fn on_frame(&mut self, _: OfPi, frame: FromPiWorker, ctx: &mut Context<Self>) {
        self.pi_frame(frame, ctx);
    }

    fn has_waiters(&self, _: OfPi) -> bool {
        !self.pi.unsent.is_empty()
    }

    fn on_already_running(&mut self, _: OfPi, ctx: &mut Context<Self>) {
        self.send_prompts(ctx);
    }

    fn fail_waiters(&mut self, _: OfPi, cause: &Cause, _: &mut Context<Self>) {
        let error = match self.pi.is_native {
            true => PiError::AgentFailed(cause.clone()),
            false => PiError::Failed(cause.clone()),
        };
        self.refuse_unsent(&error);
    }

    fn on_kill(&mut self, _: OfPi, why: KillReason) {
        self.pi.kill_reason.get_or_insert(why);
    }

    fn on_exit(&mut self, _: OfPi, exit: Option<ProcessExit>, ctx: &mut Context<Self>) {
        self.on_pi_reaped(exit, ctx);
    }

    fn on_channel_closed(&mut self, _: OfPi, ctx: &mut Context<Self>) {
        self.finish_pi_exit(ctx);
    }

    fn publish_status(&mut self, _: OfPi) {
        self.show_pi();
    }

    fn idle_deadline(&self, _: OfPi) -> Option<Instant> {
        let is_busy = self.pi.is_busy() || self.pi.end.is_some();
        if is_busy || self.services.table.is_pinned(&self.session) {
            return None;
        }
        Some(self.pi.active + self.services.daemon.config.worker.idle.value)
    }
}
