//! The turns of one session, as a state machine. [`Agent::handle`] takes an input with the current time, and returns
//! effects in their order. The driver carries them out: it writes to the session file and to the supervisor.
//!
//! - [`input`] and [`effect`]: events from the driver, and work for it;
//! - [`handle`]: the part of the engine for each input;
//! - [`agent`]: the state, and the steps that all parts share;
//! - [`commands`]: commands of clients;
//! - [`attachments`]: images and schemas of prompts;
//! - [`models`] and [`model_names`]: the model of the session;
//! - [`run`] and [`run_state`]: a run, from a prompt to the end of its last turn;
//! - [`loading`], [`instructions`] and [`servers`]: the calls before the first request of a run;
//! - [`answer`]: one answer of the model, and further attempts;
//! - [`incoming`]: answers to requests as they arrive;
//! - [`tools`], [`call_batch`] and [`results`]: the calls of one answer, and their results;
//! - [`routes`]: names by which models know the tools;
//! - [`shells`]: commands that the user runs in the shell;
//! - [`compact`] and [`compaction_state`]: summaries of a conversation that became too long;
//! - [`events`]: events for clients.

mod agent;
mod answer;
mod attachments;
mod call_batch;
mod commands;
mod compact;
mod compaction_state;
mod effect;
mod events;
mod handle;
mod incoming;
mod input;
mod instructions;
mod loading;
mod loops;
mod model_names;
mod models;
mod results;
mod routes;
mod run;
mod run_state;
mod servers;
mod shells;
#[cfg(test)]
mod tests;
mod tools;

pub use agent::{Agent, AgentSetup};
pub use effect::Effect;
pub use input::{Input, Now, Part};
pub use routes::{ToolRoute, route};
