//! A session that the registry found, with the addresses of its actors. Methods send their messages to them.

use super::actors::SessionActors;
use super::agent::AgentChoice;
use quackd_protocol::SessionId;
use quackd_protocol::far::FarWorkspace;
use quackd_protocol::isolate::{CopiedTree, SentCopy};
use quackd_protocol::state::TerminalProgram;

/// A session and its actors.
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
    pub(crate) actors: SessionActors,
    /// Path of the agent's session file. Empty if the agent has never reported one.
    pub(crate) pi_session_file: String,
    /// The user's choice of the session's agent.
    pub(crate) agent: AgentChoice,
    /// The private copy of an isolated session.
    pub(crate) isolated: Option<CopiedTree>,
    /// As [`SessionIdentity::created`](super::identity::SessionIdentity::created).
    pub(crate) created: Option<String>,
    /// Recorded programs on terminals: of this daemon, or without one those that ended with the daemon before.
    pub(crate) programs: Vec<TerminalProgram>,
}

impl FoundSession {
    /// Whether the session works on another machine or in a container.
    pub(crate) fn is_far(&self) -> bool {
        self.far().is_some()
    }

    /// Place of its commands, if that is on another machine or in a container.
    pub(crate) fn far(&self) -> Option<FarWorkspace> {
        FarWorkspace::of_session(&self.workspace_path, self.isolated.as_ref())
    }

    /// The copy on another machine in which the session works, if it was sent.
    pub(crate) fn sent(&self) -> Option<&SentCopy> {
        self.isolated.as_ref()?.sent.as_ref()
    }
}
