//! Handles frames of quackd's own agent.

use crate::session::agent::actor::AgentActor;
use crate::wire::raw_json::with_whole_characters;
use actix::prelude::*;
use quackd_protocol::agent::FromNative;

impl AgentActor {
    pub(in crate::session::agent) fn on_native_frame(
        &mut self,
        frame: FromNative,
        ctx: &mut Context<Self>,
    ) {
        match frame {
            FromNative::Hello { proto, pid, pi_pid } => {
                self.on_agent_hello(proto, [pid, pi_pid], ctx);
            }
            FromNative::CannotStart { reason } => self.on_agent_refused(&reason, ctx),
            _ if self.pids.is_none() => self.agent_broke("the first frame was no hello", ctx),
            FromNative::Answer(answer) => self.command_answered(answer, ctx),
            FromNative::Event { name, data } => {
                self.on_agent_event(name.as_str(), &with_whole_characters(data), ctx);
            }
            FromNative::Ended(end) => self.on_agent_exit(end, ctx),
            FromNative::Pong { seq } => self.on_agent_pong(seq, ctx),
            FromNative::Warning { text } => self.on_agent_warning(&text, ctx),
            FromNative::ModelRequest(request) => self.model_request(*request, ctx),
            FromNative::ModelTaken { number } => self.model_taken(number),
            FromNative::ModelCancel { number } => self.work.cancel_request(number),
            FromNative::CallTool(call) => self.agent_call(*call, ctx),
            FromNative::CancelTool { number } => self.work.cancel_call(number),
            FromNative::Spent(usd) => self.services.spending.add(usd),
        }
    }
}
