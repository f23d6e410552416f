//! The tools for agents: a server of the Model Context Protocol (MCP), which is a client of the daemon.
//!
//! An MCP host, such as Claude Code or an editor, starts `quack mcp` and calls tools. This crate turns each call into
//! one `quack.tool` request and runs nothing itself. rmcp parses and words the protocol, in revision 2026-07-28 and in
//! the older ones; the rest is here:
//!
//! - [`AgentServer`]: the handler of all requests
//! - [`serve_lines`]: lines of JSON over stdin and stdout, bounded
//! - [`http`]: streamable HTTP on a loopback address, with a token
//! - [`tool_list`]: the tools that are offered, with schemas and annotations
//!
//! One `Gateway` is one connection to the daemon. It connects with the first request that needs the daemon, says who
//! the agent is, and claims a separate session in the workspace.

#![expect(
    clippy::disallowed_types,
    reason = "rmcp runs handlers as tasks, and this process has no actors"
)]

mod batches;
mod calls;
mod counted_body;
mod daemon_link;
mod elicitations;
mod gateway;
mod habits;
pub mod http;
mod http_batches;
mod line_transport;
mod parked_calls;
mod questions;
mod results;
mod server;
mod tasks;
pub mod tool_list;

pub use gateway::{Gateways, Scope, ServeOptions};
pub use line_transport::serve_lines;
pub use server::AgentServer;

use std::sync::{Mutex, MutexGuard, PoisonError};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
