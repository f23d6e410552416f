//! Implements [`ChildActor`] for the agent.

use super::{AgentFrame, OfAgent, native, pi};
use crate::children::{
    ChannelLimits, Child, ChildActor, ChildKind, ChildServices, KillReason, Program,
};
use crate::errors::AgentError;
use crate::session::actor::SessionActor;
use actix::prelude::*;
use quackd_process::Exit as ProcessExit;
use quackd_protocol::agent::ToAgent;
use quackd_protocol::limits::{AGENT_EVENTS_BURST, AGENT_EVENTS_PER_SECOND};
use quackd_supervision::Cause;
use std::time::Instant;

/// Number of unknown frames that are skipped.
const MAX_UNKNOWN: u32 = 1_000;

impl ChildKind for OfAgent {
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

impl ChildActor<OfAgent> for SessionActor {
    fn child(&self, _: OfAgent) -> &Child {
        &self.agent.child
    }

    fn child_mut(&mut self, _: OfAgent) -> &mut Child {
        &mut self.agent.child
    }

    fn services(&self, _: OfAgent) -> &ChildServices {
        &self.services.children
    }

    fn start(&mut self, _: OfAgent, ctx: &mut Context<Self>) {
        self.start_agent(ctx);
    }

    fn on_frame(&mut self, _: OfAgent, frame: AgentFrame, ctx: &mut Context<Self>) {
        self.on_agent_frame(frame, ctx);
    }

    fn has_waiters(&self, _: OfAgent) -> bool {
        !self.agent.unsent.is_empty()
    }

    fn on_already_running(&mut self, _: OfAgent, ctx: &mut Context<Self>) {
        self.send_prompts(ctx);
    }

    fn fail_waiters(&mut self, _: OfAgent, cause: &Cause, _: &mut Context<Self>) {
        let (engine, cause) = (self.agent.engine, cause.clone());
        self.refuse_unsent(&AgentError::Failed { engine, cause });
    }

    fn on_kill(&mut self, _: OfAgent, why: KillReason) {
        self.agent.kill_reason.get_or_insert(why);
    }

    fn on_exit(&mut self, _: OfAgent, exit: Option<ProcessExit>, ctx: &mut Context<Self>) {
        self.on_agent_reaped(exit, ctx);
    }

    fn on_channel_closed(&mut self, _: OfAgent, ctx: &mut Context<Self>) {
        self.finish_agent_exit(ctx);
    }

    fn publish_status(&mut self, _: OfAgent) {
        self.publish_agent();
    }

    fn idle_deadline(&self, _: OfAgent) -> Option<Instant> {
        let is_busy = self.agent.is_busy() || self.agent.end.is_some();
        if is_busy || self.services.table.is_pinned(&self.session) {
            return None;
        }
        Some(self.agent.active + self.services.daemon.config.worker.idle.value)
    }
}
