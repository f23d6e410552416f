//! The agent of a session, one process: quackd's own agent, or the user's Pi.
//!
//! - [`engine`] chooses between them. [`native`] has what only quackd's own agent has, and [`pi`] what only Pi has.
//! - [`prompts`] is the part of the session's actor for the agent, and its prompts. Other requests are in [`requests`].
//!   [`lifecycle`] starts and stops the process, [`frames`] handles its frames, and [`child_impl`] implements the child
//!   interface.
//! - [`commands`] and [`dialogs`] are its two tables. [`turns`] assigns the ids of turns. [`failure`] is its last
//!   failure.
//! - [`history`] is the file of the conversation. With it Pi works in the workspace without starting there.

mod child_impl;
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

pub(crate) use failure::{Failure, LastFailure};
pub(crate) use history::{create_blocking, fork_blocking, is_conversation_id};
pub(crate) use prompts::{AgentPart, CommandReply, SendCommand};
pub(crate) use requests::AnswerDialog;

/// Selects the agent of a session's actor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfAgent;
