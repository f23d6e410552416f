//! The agent of a session, one process: the user's Pi, or quackd's own agent.
//!
//! - [`engine`] chooses between them. [`agent`] prepares the start of quackd's own agent, and [`agent_work`] its requests
//!   to models and its tool calls, and [`mcp_servers`] the servers that its tool calls may reach.
//! - [`prompts`] is the part of the session's actor for Pi, and its prompts. Other requests are in [`requests`].
//!   [`lifecycle`] starts and stops the process, [`frames`] handles its frames, and [`child_impl`] implements the child
//!   interface.
//! - [`commands`] and [`dialogs`] are its two tables. [`turns`] assigns the ids of turns.
//! - [`locate`] finds the program and builds its arguments. [`crate::children::pi_env`] builds its environment: only there do keys
//!   leave the daemon. [`outside`] protects both from commands, and [`old_pi`] an
//!   old Pi. [`history`] makes Pi work in the workspace without
//!   starting there.

mod agent;
pub(crate) mod agent_work;
mod child_impl;
mod commands;
mod dialogs;
pub(crate) mod engine;
mod frames;
mod health;
mod history;
mod instructions;
mod lifecycle;
mod locate;
pub(crate) mod mcp_servers;
mod old_pi;
pub(crate) mod outside;
mod prompts;
mod requests;
mod turns;

pub(crate) use health::checks;
pub(crate) use history::{create_blocking, fork_blocking, is_conversation_id};
pub(crate) use prompts::{CommandReply, PiPart, SendCommand};
pub(crate) use requests::AnswerDialog;

use quackd_protocol::SessionId;
use quackd_protocol::foreign_text::{one_line, stripped_line};
use std::cell::RefCell;

/// Selects the Pi of a session's actor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfPi;

/// Maximum length of a recorded failure, in characters.
const MAX_FAILURE: usize = 400;

/// The last failure of an agent, until an agent of the same session succeeds. For `doctor`.
#[derive(Debug, Default)]
pub(crate) struct LastFailure(RefCell<Option<Failure>>);

/// Failure of a session's agent.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    session: SessionId,
    pub(crate) session_name: String,
    /// ISO 8601 UTC.
    pub(crate) at: String,
    pub(crate) why: String,
    /// Whether it was quackd's own agent, and not a Pi.
    is_native: bool,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "last failure, in {} at {}: {}", self.session_name, self.at, self.why)
    }
}

impl LastFailure {
    /// Records that a session's agent failed to start, or crashed.
    fn note(&self, session: &SessionId, name: &str, is_native: bool, why: &str) {
        self.0.replace(Some(Failure {
            session: session.clone(),
            session_name: one_line(name),
            at: crate::clock::now_text(),
            why: stripped_line(why, MAX_FAILURE),
            is_native,
        }));
    }

    /// Removes the failure, because the session's Pi works or the session was deleted.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.0.borrow_mut().take_if(|failure| failure.session == *session);
    }

    /// Returns the failure if it was one of quackd's own agent, or of a Pi.
    pub(crate) fn get(&self, of_native: bool) -> Option<Failure> {
        self.0.borrow().clone().filter(|failure| failure.is_native == of_native)
    }
}
