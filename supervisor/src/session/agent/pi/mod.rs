//! The user's Pi.
//!
//! - [`launch`] prepares the start. [`locate`] finds the program and builds its arguments;
//!   [`crate::children::pi_env`] builds its environment: only there do keys leave the daemon.
//! - [`outside`] protects both from commands, and [`old_pi`] an old Pi.
//! - [`frames`] handles its frames. [`health`] has the checks for `doctor`.

mod frames;
mod health;
pub(super) mod launch;
mod locate;
mod old_pi;
pub(crate) mod outside;

pub(crate) use health::checks;

use super::{AgentFrame, ExitReason};
use crate::children::{KillReason, Program};
use crate::errors::AgentError;
use quackd_ipc::frames::decode;
use quackd_protocol::agent::{Engine, FROM_PI_TAGS};
use quackd_supervision::{Cause, Exit};

pub(super) const PROGRAM: Program<AgentFrame> = Program {
    verb: "pi-worker",
    decode: |body| Ok(decode(body, FROM_PI_TAGS)?.map(AgentFrame::Pi)),
};

fn not_started(why: impl ToString) -> AgentError {
    AgentError::NotStarted { engine: Engine::Pi, why: why.to_string() }
}

/// Error of the callers that wait for a process that exits or cannot be reached.
pub(super) fn exit_error(reason: ExitReason) -> AgentError {
    match reason {
        ExitReason::OverMemory(cause) => AgentError::Ended(cause),
        ExitReason::Killed(KillReason::ClosedStdin) => AgentError::Stdin,
        ExitReason::Killed(_) => AgentError::Ended(Cause::NotResponding),
        ExitReason::Exited(Exit::Code(code)) => AgentError::Exited { code: Some(code) },
        ExitReason::Exited(_) => AgentError::Exited { code: None },
    }
}
