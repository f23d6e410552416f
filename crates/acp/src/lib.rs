//! The agent for editors: a server of the Agent Client Protocol (ACP), version 1, which is a client of the daemon.
//!
//! An editor, such as Zed, starts `quack acp` and sends prompts. This crate runs no model and no tool: a prompt becomes
//! one `say` of the daemon, and the events of its turn become `session/update` notifications. Each session of the editor
//! is one session of the daemon, with a separate connection that follows it.
//!
//! - [`serve_lines`]: lines of JSON-RPC over stdin and stdout, bounded
//! - `server`: the requests
//! - `session`: one session: its connection, its prompts, its questions
//! - `updates`, `tool_view`, `replay`: events and messages as updates, without I/O

#![expect(
    clippy::disallowed_types,
    reason = "requests run as tasks of one runtime, and this process has no actors"
)]

mod agent_options;
mod mcp_servers;
mod modes;
mod params;
mod permissions;
mod prompt;
mod replay;
mod rpc;
mod server;
mod session;
mod sessions;
mod tool_view;
mod turns;
mod updates;

pub use server::serve_lines;

use quackd_agent::transcript::Transcript;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Function that reads a session file, and blocks. Returns `None` if the file is missing or empty. The text of an error
/// has the path.
pub type ReadTranscript = fn(&Path) -> io::Result<Option<Transcript>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
