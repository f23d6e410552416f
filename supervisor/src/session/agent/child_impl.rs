//! Implements [`ChildActor`] for the agent.

use super::actor::AgentActor;
use super::{AgentFrame, native, pi};
use crate::children::{
    ChannelLimits, Child, ChildActor, ChildKind, ChildServices, Evict, KillReason, ManageDriver,
    MemoryLimitExceeded, Program, ResetTimers, Settle,
};
use crate::errors::AgentError;
use actix::prelude::*;
use quackd_protocol::agent::ToAgent;
use quackd_protocol::limits::{AGENT_EVENTS_BURST, AGENT_EVENTS_PER_SECOND};
use quackd_supervision::{Cause, Exit};
use std::time::Instant;

/// Number of unknown frames that are skipped.
const MAX_UNKNOWN: u32 = 1_000;

impl ChildKind for AgentActor {
    type FromChild = AgentFrame;
    type ToChild = ToAgent;
    const WIRE: ChannelLimits = ChannelLimits {
        max_unknown: MAX_UNKNOWN,
        pace: Some((AGENT_EVENTS_BURST, AGENT_EVENTS_PER_SECOND)),
    };
    const NAME: &'static str = "agent";

    fn ping(seq: u64) -> ToAgent {
        ToAgent::Ping { seq }
    }

    fn shutdown() -> ToAgent {
        ToAgent::Shutdown {}
    }

    fn program(start: &ToAgent) -> Program<AgentFrame> {
        match start {
            ToAgent::StartAgent(_) => native::PROGRAM,
            _ => pi::PROGRAM,
        }
    }
}

impl ChildActor for AgentActor {
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
        self.start_agent(ctx);
    }

    fn on_frame(&mut self, frame: AgentFrame, ctx: &mut Context<Self>) {
        self.on_agent_frame(frame, ctx);
    }

    fn has_waiters(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn on_already_running(&mut self, ctx: &mut Context<Self>) {
        self.send_prompts(ctx);
    }

    fn fail_waiters(&mut self, cause: &Cause, _: &mut Context<Self>) {
        let (engine, cause) = (self.engine, cause.clone());
        self.refuse_unsent(&AgentError::Failed { engine, cause });
    }

    fn on_kill(&mut self, why: KillReason) {
        self.kill_reason.get_or_insert(why);
    }

    fn on_exit(&mut self, exit: Option<Exit>, ctx: &mut Context<Self>) {
        self.on_agent_reaped(exit, ctx);
    }

    fn on_channel_closed(&mut self, ctx: &mut Context<Self>) {
        self.finish_agent_exit(ctx);
    }

    fn publish_status(&mut self) {
        self.publish_agent();
    }

    fn idle_deadline(&self) -> Option<Instant> {
        let is_busy = self.is_busy() || self.end.is_some();
        if is_busy || self.services.table.is_pinned(&self.session.id) {
            return None;
        }
        Some(self.active + self.services.daemon.config.worker.idle.value)
    }
}

impl Handler<Evict> for AgentActor {
    type Result = bool;

    fn handle(&mut self, Evict(why): Evict, ctx: &mut Self::Context) -> bool {
        self.on_evict(why, ctx)
    }
}

impl Handler<MemoryLimitExceeded> for AgentActor {
    type Result = ();

    fn handle(&mut self, exceeded: MemoryLimitExceeded, ctx: &mut Self::Context) {
        self.on_memory_exceeded(exceeded, ctx);
    }
}

impl Handler<ResetTimers> for AgentActor {
    type Result = ();

    fn handle(&mut self, _: ResetTimers, ctx: &mut Self::Context) {
        self.reset_timers(ctx);
    }
}

impl Handler<Settle> for AgentActor {
    type Result = ();

    fn handle(&mut self, _: Settle, _: &mut Self::Context) {}
}
