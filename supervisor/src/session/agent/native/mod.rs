//! quackd's own agent.
//!
//! - [`launch`] prepares the start: the models, the session file and the settings. [`frames`] handles its frames.
//! - [`work`] does the agent's work outside of its process: requests to models, and tool calls through the
//!   [`tool_runner`]. [`open_work`] has the requests and calls without an answer.
//! - [`mcp_servers`] are the servers that its tool calls may reach. [`instructions`] reads the user's own files for it.

mod frames;
mod instructions;
pub(super) mod launch;
pub(crate) mod mcp_servers;
pub(super) mod open_work;
pub(crate) mod tool_runner;
mod work;

use super::{AgentFrame, ExitReason};
use crate::children::Program;
use crate::errors::AgentError;
use quackd_ipc::frames::decode;
use quackd_protocol::agent::{Engine, FROM_NATIVE_TAGS};
use quackd_supervision::Cause;

pub(super) const PROGRAM: Program<AgentFrame> = Program {
    verb: "agent-worker",
    decode: |body| Ok(decode(body, FROM_NATIVE_TAGS)?.map(AgentFrame::Native)),
};

fn not_started(why: impl ToString) -> AgentError {
    AgentError::NotStarted { engine: Engine::Native, why: why.to_string() }
}

/// Error of the callers that wait for a process that exits or cannot be reached.
pub(super) fn exit_error(reason: ExitReason) -> AgentError {
    AgentError::NativeEnded(match reason {
        ExitReason::OverMemory(cause) => cause.to_string(),
        ExitReason::Killed(why) => why.text().to_owned(),
        ExitReason::Exited(exit) => Cause::from(exit).to_string(),
    })
}
