//! The Pi worker: one process per session that talks to an agent, never the one that runs tools.
//!
//! It starts the user's Pi, translates between Pi's line protocol and frames, and ends with Pi. Its monitor
//! ends what both leave behind.
//!
//! In reading order:
//! - [`stage0`]: single-threaded start: the first frame, the monitor process, limits;
//! - [`serve`]: Pi and its pipes, and the control channel;
//! - [`dialect`]: what Pi prints, as this daemon's wire says it; with [`fields`] and [`shrink`];
//! - [`turn`]: when a turn is over;
//! - [`pending`]: whose an answer without an id is.
//!
//! The worker reads no configuration and writes no file.

mod dialect;
mod fields;
mod pending;
mod serve;
mod shrink;
mod stage0;
mod turn;
mod version;

use quackd_protocol::worker::EXIT_TERMINAL;
use std::process::ExitCode;

/// Runs as a Pi worker until Pi has ended or the supervisor is gone. Called by `quack pi-worker` before
/// anything else has happened in the process.
///
/// In the first process that enters (the supervisor's direct child) this never returns: it becomes the
/// monitor.
#[must_use]
pub fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|info| {
        complain(&format!("panic: {info}").replace('\n', " "));
        std::process::abort();
    }));
    let started = match stage0::enter() {
        Ok(started) => started,
        Err(error) => {
            stage0::refuse(&error);
            complain(&format!("pi worker cannot start: {error}"));
            return ExitCode::from(EXIT_TERMINAL);
        }
    };
    match serve::run(started) {
        Ok(code) => code,
        Err(error) => {
            complain(&format!("pi worker: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// One line for the supervisor, which keeps the last lines of a worker's stderr for its death report.
fn complain(text: &str) {
    use std::io::Write;
    // There is nobody else to tell.
    drop(writeln!(std::io::stderr(), "{text}"));
}
