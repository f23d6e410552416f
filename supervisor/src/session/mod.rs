//! One session: its actor, with its worker, the pending calls, and its agent.

pub(crate) mod actor;
pub(crate) mod agent;
pub(crate) mod call_record;
pub(crate) mod checkpoints;
pub(crate) mod describe;
pub(crate) mod models;
pub(crate) mod network;
pub(crate) mod owner;
pub(crate) mod pending_calls;
mod pending_input;
mod recording;
pub(crate) mod services;
pub(crate) mod spending;
mod unrecorded;
pub(crate) mod worker;

use actix::Addr;
use actor::SessionActor;
use agent::engine::AgentChoice;
use quackd_protocol::SessionId;
use quackd_protocol::isolate::CopiedTree;

pub(crate) type SessionEntry = crate::pool::sessions::SessionEntry<Addr<SessionActor>>;
pub(crate) type SessionTable = crate::pool::sessions::SessionTable<Addr<SessionActor>>;

/// A session and its actor.
#[derive(Debug, Clone)]
pub(crate) struct FoundSession {
    pub(crate) session_id: SessionId,
    pub(crate) session_name: String,
    /// `unknown` without a workspace.
    pub(crate) workspace_path: String,
    /// Whether its workspace is known. Always true unless it was looked up with `Purpose::Describe`.
    pub(crate) has_workspace: bool,
    pub(crate) safe_mode: bool,
    /// Number of worker crashes, over all runs of the daemon.
    pub(crate) restarts: u64,
    pub(crate) handle: Addr<SessionActor>,
    /// Path of the agent's session file. Empty if the agent has never reported one.
    pub(crate) pi_session_file: String,
    /// The user's choice of the session's agent.
    pub(crate) agent: AgentChoice,
    /// The private copy of an isolated session.
    pub(crate) isolated: Option<CopiedTree>,
}
