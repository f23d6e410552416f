//! Handles frames of the Pi worker.

use crate::children::{KillReason, LifecycleDriver};
use crate::session::agent::actor::AgentActor;
use crate::wire::raw_json::with_whole_characters;
use actix::prelude::*;
use quackd_protocol::agent::FromPi;
use quackd_supervision::Cause;

impl AgentActor {
    pub(in crate::session::agent) fn on_pi_frame(
        &mut self,
        frame: FromPi,
        ctx: &mut Context<Self>,
    ) {
        match frame {
            FromPi::Hello { proto, pid, pi_pid } => self.on_agent_hello(proto, [pid, pi_pid], ctx),
            FromPi::CannotStart { reason } => self.on_agent_refused(&reason, ctx),
            _ if self.pids.is_none() => self.agent_broke("the first frame was no hello", ctx),
            FromPi::Answer(answer) => self.command_answered(answer, ctx),
            FromPi::Event { name, data } => {
                self.on_agent_event(&name, &with_whole_characters(data), ctx);
            }
            FromPi::Dialog { id, timeout_ms, data } => {
                self.on_question(id, timeout_ms, &with_whole_characters(data), ctx);
            }
            FromPi::StdinFailed { reason } => {
                let reason: String = reason.chars().take(200).collect();
                tracing::warn!(session = %self.session.id, reason, "Pi does not read commands");
                let cause = Cause::Protocol("Pi closed its stdin".to_owned());
                self.kill_for(cause, KillReason::ClosedStdin, ctx);
            }
            FromPi::Ended(end) => self.on_agent_exit(end, ctx),
            FromPi::Pong { seq } => self.on_agent_pong(seq, ctx),
            FromPi::Warning { text } => self.on_agent_warning(&text, ctx),
            FromPi::Version { .. } => self.agent_broke("a version that was not asked for", ctx),
        }
    }
}
