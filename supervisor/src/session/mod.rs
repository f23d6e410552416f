//! One session: its actor, with its worker, the pending calls, and its agent.

pub(crate) mod actor;
pub(crate) mod agent;
pub(crate) mod call_record;
pub(crate) mod checkpoints;
pub(crate) mod copy_limit;
pub(crate) mod describe;
mod found_session;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod network;
pub(crate) mod owner;
pub(crate) mod pending_calls;
mod pending_input;
mod recording;
pub(crate) mod spending;
mod unrecorded;
pub(crate) mod worker;

pub(crate) use actor::SessionEntry;
pub(crate) use found_session::FoundSession;
