//! The wires as types, without behavior: the readers interpret the messages.
//!
//! Two wires:
//! - [`client`]: newline-delimited JSON between a client and the supervisor. The Rubber Duck daemon protocol plus our
//!   additive `quack.*` methods.
//! - [`worker`]: length-delimited JSON frames between the supervisor and one session worker. [`environment`] has the
//!   frames of the process that captures the login environment, [`agent`] those of the process of a session's agent.
//!
//! Every bound of both sides is in [`limits`], with its reason.

pub mod agent;
pub mod agent_options;
pub mod approval;
mod call_spec;
mod ceiling;
pub mod client;
pub mod credentials;
pub mod denial;
pub mod environment;
pub mod far;
pub mod far_errand;
pub mod foreign_text;
pub mod guest_agents;
pub mod ids;
pub mod instructions;
pub mod isolate;
mod job;
pub mod journal;
pub mod limits;
pub mod mask;
pub mod mcp;
pub mod metadata;
pub mod model;
pub mod network;
pub mod output;
pub mod places;
pub mod plain;
pub mod policy;
pub mod search;
pub mod shorten;
pub mod state;
pub mod suggestion;
pub mod surrogates;
pub mod terminal;
pub mod tiers;
pub mod tools;
pub mod web;
pub mod white_space;
pub mod worker;

pub use ceiling::CeilingKind;
pub use ids::{CallId, SessionId, WorkspaceId};

/// Version of the program, as reported by `quack version`, `ping` and the worker's `hello`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
