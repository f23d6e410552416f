//! The session worker: one process per session, and the only process in which tools run.
//!
//! In reading order:
//! - [`stage0`]: single-threaded start: the first frame, the monitor process, limits.
//! - [`platform`]: which tier of confinement, and entering it; [`seatbelt_confinement`] is that of macOS.
//! - [`link`]: frames in, frames out.
//! - [`executor`]: admits calls, keeps their cancel handles and answers each exactly once.
//! - [`updates`]: the output of running calls, for the clients that follow the session.
//! - [`jobs`]: reports of running background jobs.
//! - [`terminals`]: messages of their terminals.
//! - [`network`]: the pair to the network proxy outside.
//! - [`ssh_agent`]: the socket by which commands reach the user's ssh agent.
//! - [`web`]: web searches that the supervisor performs for a call.
//!
//! The worker reads no configuration, no environment and no file of the supervisor. It has no secrets. It never links
//! `quackd-store`: it cannot write metadata.

mod confinement_result;
mod executor;
mod input;
mod jobs;
mod link;
mod network;
mod platform;
mod private_files;
mod real_paths;
mod seatbelt_confinement;
mod ssh_agent;
mod stage0;
mod start_error;
mod streaming;
mod terminals;
mod trees;
mod updates;
mod user_git;
mod web;

pub use platform::run_role;

use quackd_process::{abort_on_panic, complain};
use quackd_protocol::worker::EXIT_TERMINAL;
use std::process::ExitCode;

/// Runs as a worker until the supervisor stops it or exits. Called by `quack worker` before any other code in the
/// process.
///
/// In the first process that enters (the supervisor's direct child) this never returns: that process becomes the
/// monitor.
#[must_use]
pub fn main() -> ExitCode {
    abort_on_panic();
    match stage0::enter() {
        Ok(started) => executor::serve(started),
        Err(error) => {
            stage0::refuse(&error);
            complain(&format!("worker cannot start: {error}"));
            ExitCode::from(EXIT_TERMINAL)
        }
    }
}
