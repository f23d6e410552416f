//! The Pi worker: one process per session that uses Pi. It is separate from the session worker, which runs tools.
//!
//! It starts the user's Pi, translates between Pi's line protocol and frames, and exits with Pi. Its monitor kills
//! the remaining processes of both.
//!
//! In reading order:
//! - [`stage0`]: single-threaded start: the first frame, the monitor process, limits;
//! - [`serve`]: Pi and its pipes, and the control channel;
//! - [`dialect`]: translates Pi's output to this daemon's wire format, with [`fields`];
//! - [`turn`]: detects the end of a turn;
//! - [`pending`]: finds the command of an answer without an id.
//!
//! The worker reads no configuration and writes no file.

mod dialect;
mod fields;
mod pending;
mod serve;
mod stage0;
mod turn;
mod version;

use quackd_process::abort_on_panic;
use quackd_process::complain;
use quackd_protocol::worker::EXIT_TERMINAL;
use std::process::ExitCode;

/// Runs as a Pi worker until Pi or the supervisor exits. Called by `quack pi-worker` before any other code in the
/// process.
///
/// In the first process that enters (the supervisor's direct child) this never returns: that process becomes the
/// monitor.
#[must_use]
pub fn main() -> ExitCode {
    abort_on_panic();
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
