//! The supervisor: the one process that knows every session and never runs a tool.
//!
//! In the order in which a tool call passes:
//! - [`listener`] accepts clients, [`connection`] reads their lines, [`wire`] parses them, [`methods`]
//!   answers them. [`clients`] knows who is connected, [`voice`] which of them speak for a
//!   session.
//! - [`pi`] has the user's agent of each session, in a process of its own.
//! - [`registry`] knows workspaces and sessions ([`catalog`] is its pure part) and has one
//!   [`worker_handle`] per session, which starts, watches and restarts that session's worker and keeps
//!   its unanswered [`calls`]; [`child`] is what every supervised process and its handle have in common.
//! - [`standing`] says what each session is doing, [`tenants`] who has a place and who is ended for another,
//!   [`memory`] whether memory is short, [`pulse`] whether time went by as it should.
//! - [`remote`] lets clients of other machines in, through a thread of its own; [`metrics_endpoint`] gives
//!   numbers to a Prometheus, through another one.
//! - [`places`] says how many commands run at the same time over all sessions, [`spills`] bounds what their
//!   outputs take of the disk, [`keeping`] deletes what nobody needs and watches what is free.
//! - [`spawner`] is the main thread: every child is started and reaped there.
//! - [`manager`] is the service manager above, [`executable`] the program that runs, [`interrupted`] what the
//!   last stop cut short.
//! - [`environment`] is what commands get, [`login`] asks the user's shell for its part of it.
//!
//! Three threads matter: the main thread (children), `actors` (everything else here, one actix
//! arbiter), `store` (metadata on disk). The log has a thread of its own. Nothing on the actors' thread
//! blocks.
//!
//! This library cannot name the tools: it does not link `quackd-tools`, `quackd-search` or the agent.

mod children;
mod clients;
mod clock;
mod daemon_info;
mod errors;
mod events;
mod health;
mod log;
mod methods;
mod metrics;
mod pool;
mod registry;
mod remote;
mod retention;
mod service;
mod services;
mod session;
mod voice;
mod wire;
mod workspaces;

pub use errors::start::StartError;
pub use health::next_daemon::check_config_blocking;
pub use service::daemon::{DaemonOptions, Ended, run};
