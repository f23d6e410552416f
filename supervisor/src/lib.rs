//! The supervisor: the process that owns all sessions and all secrets, and never runs a tool.
//!
//! The modules form layers. A module imports only modules of lower layers (checked by `tests/tidy.rs`):
//!
//! 1. [`platform`] (what differs between systems), [`clock`], [`log`], [`metrics`] (counters, latencies, process usage), [`workspaces`] (directories that no session
//!    may use), [`obeyed`] (files that the daemon obeys), [`daemon_info`] (paths and configuration) and [`engines`] (programs that reach
//!    other machines).
//! 2. [`wire`] parses request lines and writes to clients; [`errors`] contains the errors and their texts.
//! 3. [`events`] numbers the events of each session, and knows the connected clients that follow them. [`children`]
//!    starts, watches and reaps child processes. [`health`] records what `doctor` reports. [`remote`] is the
//!    configuration of remote control.
//! 4. [`pool`] has the published state of all sessions, and limits live processes, running commands and disk space.
//!    [`voice`] tracks voice clients. [`approvals`] asks the user about denied operations.
//! 5. [`session`] has the actors of sessions: one for the worker with the pending calls, one for its network, one for
//!    the agent.
//! 6. [`registry`] owns workspaces and sessions, and saves them.
//! 7. [`retention`] deletes expired files and sessions without a directory. [`links`] leads requests by name to sessions.
//! 8. [`services`] bundles all of this for [`methods`], which answer requests.
//! 9. [`clients`] accepts connections; [`service`] starts and stops the daemon.
//!
//! Threads: the main thread starts and reaps children, `actors` is one actix arbiter for all actors, and the store's
//! thread writes metadata. The log, remote control, the metrics endpoint and web searches have their own threads.
//! Nothing on the actors' thread blocks.
//!
//! This library does not link `quackd-tools`, `quackd-search` or the agent.

mod approvals;
mod children;
mod clients;
mod clock;
mod daemon_info;
mod engines;
mod errors;
mod events;
mod health;
mod links;
mod log;
mod methods;
mod metrics;
mod obeyed;
mod platform;
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

pub use daemon_info::ConfigFile;
pub use errors::start::StartError;
pub use health::next_daemon::{check_config_blocking, check_new_config_blocking, read_config};
pub use obeyed::held_config_blocking;
pub use service::daemon::{DaemonOptions, Ended, run};
