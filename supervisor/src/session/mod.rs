//! One session: the actors of its worker and its agent, and the pending calls. The actor of the worker's network is below
//! that of the worker.

pub(crate) mod actors;
pub(crate) mod agent;
pub(crate) mod call_record;
pub(crate) mod checkpoints;
pub(crate) mod copy_limit;
pub(crate) mod created;
pub(crate) mod describe;
pub(crate) mod far_client;
mod found_session;
mod identity;
pub(crate) mod models;
pub(crate) mod network;
pub(crate) mod owner;
pub(crate) mod pending_calls;
mod pending_input;
pub(crate) mod services;
pub(crate) mod spending;
pub(crate) mod worker;

pub(crate) use found_session::FoundSession;
