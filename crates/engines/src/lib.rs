//! Engines that start a session's worker elsewhere, as data: the argument lists of their clients, and what they promise.
//! quackd has no scheduler: an engine places, queues and limits.
//!
//! - [`Engine`] is a row: [`built_in`] has those of quackd, the configuration those of the user.
//! - [`Engine::argv`] fills in a row for one session.
//! - [`client_env`] returns the environment of an engine's client.
//! - [`quote`] is the only function that writes a line for a shell of another machine.

mod argv;
mod bootstrap;
mod built_in;
mod client_env;
mod engine;
mod quote;

pub use argv::{EngineArgv, Filling, MAX_CREATED_OUTPUT, created};
pub use built_in::built_in;
pub use client_env::client_env;
pub use engine::{Engine, EngineError, MAX_WORDS, Program, Promise, TargetRule};
pub use quote::quote;
