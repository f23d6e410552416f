//! The agent worker: the agent of one session. It turns prompts into requests to a model, and the model's answers into
//! tool calls, until the model is done.
//!
//! It has no key, no network, no program and no file but the open session file. Its requests to models and its tool
//! calls are frames to the supervisor. It reads every byte that a model or a tool sends, so before it reads the first
//! one, it gives up everything else (`quackd_sandbox::confine::enter_agent`).
//!
//! In reading order:
//! - [`serve`]: frames of the supervisor, and the effects of the agent;
//! - [`session_file`]: the open session file.
//!
//! The agent itself is `crates/agent`.

mod serve;
mod session_file;

use crate::serve::Started;
use crate::session_file::SessionFile;
use quackd_ipc::first::{read_first_with_descriptors_blocking, write_first_blocking};
use quackd_ipc::link;
use quackd_process::{
    Role, abort_on_panic, complain, die_with_parent, harden, rank_above_parent, set_process_name,
};
use quackd_protocol::agent::{AGENT_FRAME_PROTOCOL, FromNative, TO_AGENT_TAGS, ToAgent};
use quackd_protocol::worker::EXIT_TERMINAL;
use std::io;
use std::process::ExitCode;

/// Maximum size of the first frame, in bytes. It contains the models.
const MAX_FIRST_FRAME: usize = 4 * 1024 * 1024;

/// Runs as an agent worker until the supervisor closes the channel. Called by `quack agent-worker` before any other code
/// in the process.
#[must_use]
pub fn main() -> ExitCode {
    abort_on_panic();
    let started = match enter() {
        Ok(started) => started,
        Err(error) => {
            let refusal = FromNative::CannotStart { reason: error.to_string() };
            // A failed report cannot be handled.
            write_first_blocking(rustix::stdio::stdin(), &refusal).ok();
            complain(&format!("agent cannot start: {error}"));
            return ExitCode::from(EXIT_TERMINAL);
        }
    };

    match serve::run(started) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("agent failed: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Does the part of the start that needs a process with one thread.
fn enter() -> io::Result<Started> {
    die_with_parent()?;
    set_process_name("quack-agent");
    harden(Role::Agent)?;
    // If memory runs out, the agent ends before the supervisor.
    rank_above_parent().ok();

    let (first, descriptors) = read_first_with_descriptors_blocking(
        rustix::stdio::stdin(),
        MAX_FIRST_FRAME,
        TO_AGENT_TAGS,
        1,
    )?;
    let ToAgent::StartAgent(start) = first else {
        return Err(io::Error::other("another message came first"));
    };

    if start.proto != AGENT_FRAME_PROTOCOL {
        let text = format!(
            "the supervisor speaks version {}, this program {AGENT_FRAME_PROTOCOL}",
            start.proto
        );
        return Err(io::Error::other(text));
    }

    let file = descriptors.into_iter().next();
    let file = file.ok_or_else(|| io::Error::other("no session file came with the start"))?;

    let control = link::take_control_channel()?;
    // Last, because from here on the process can open no file.
    let notes = quackd_sandbox::confine::enter_agent().map_err(io::Error::other)?;
    Ok(Started { control, start: *start, file: SessionFile::new(file.into()), notes })
}
