//! The agent of a session, one process: quackd's own agent, or the user's Pi.
//!
//! - [`engine`] chooses between them. [`native`] has what only quackd's own agent has, and [`pi`] what only Pi has.
//! - [`actor`] owns it, with the user's [`choice`]. [`prompts`] has its commands and prompts.
//!   Other requests are in [`requests`]. [`lifecycle`] starts and stops the process, [`frames`] handles its frames, and
//!   [`child_impl`] implements the child interface.
//! - [`commands`] and [`dialogs`] are its two tables. [`turns`] assigns the ids of turns. [`failure`] is its last
//!   failure.
//! - [`history`] is the file of the conversation. With it Pi works in the workspace without starting there.

mod actor;
mod child_impl;
mod choice;
mod commands;
mod dialogs;
pub(crate) mod engine;
mod failure;
mod frames;
mod history;
mod lifecycle;
pub(crate) mod native;
pub(crate) mod pi;
mod prompts;
mod requests;
mod turns;

pub(crate) use actor::AgentActor;
pub(super) use actor::AgentStart;
pub(crate) use choice::AgentChoice;
pub(crate) use failure::{Failure, LastFailure};
pub(crate) use history::{create_blocking, fork_blocking, is_conversation_id};
pub(crate) use prompts::{SendCommand, StartAgent};
pub(super) use requests::{AbortTurn, SetAgent};
pub(crate) use requests::{
    AbortedTurn, AnswerDialog, GetAgentOptions, RefreshAgent, SetAgentOptions,
};

use crate::children::KillReason;
use quackd_protocol::agent::{FromNative, FromPi};
use quackd_supervision::{Cause, Exit};

/// A frame of the session's agent.
#[derive(Debug)]
pub(crate) enum AgentFrame {
    Native(FromNative),
    Pi(FromPi),
}

/// The reason why the process of an agent ends.
enum ExitReason {
    /// The session was over its memory limit.
    OverMemory(Cause),
    Killed(KillReason),
    Exited(Exit),
}
