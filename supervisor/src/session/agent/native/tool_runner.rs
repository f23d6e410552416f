//! The interface through which quackd's own agent runs tools. `work.rs` calls it, and the methods implement it.

use futures_util::future::LocalBoxFuture;
use quackd_protocol::SessionId;
use quackd_protocol::agent::{AgentToolCall, AgentToolDone};
use std::fmt::Debug;
use tokio_util::sync::CancellationToken;

/// Runs a tool call of a session's agent like one of a client, with its questions to the user.
pub(crate) trait ToolRunner: Debug {
    /// Returns the result. `cancel` ends the call.
    fn run(&self, call: AgentCall) -> LocalBoxFuture<'static, AgentToolDone>;
}

/// A tool call of a session's agent.
#[derive(Debug)]
pub(crate) struct AgentCall {
    pub(crate) session: SessionId,
    pub(crate) call: AgentToolCall,
    pub(crate) cancel: CancellationToken,
}
