//! The processes of one session: its worker with the pending calls, and its Pi.

pub(crate) mod describe;
pub(crate) mod owner;
pub(crate) mod pending_calls;
pub(crate) mod pi;
pub(crate) mod services;
pub(crate) mod worker;

use actix::Addr;
use pi::PiHandle;
use quackd_protocol::SessionId;
use std::cell::OnceCell;
use worker::WorkerHandle;

/// The actors of one session.
#[derive(Debug)]
pub(crate) struct Handles {
    pub(crate) worker: Addr<WorkerHandle>,
    /// Set when the session needs a Pi for the first time.
    pub(crate) pi: OnceCell<Addr<PiHandle>>,
}

pub(crate) type SessionEntry = crate::pool::sessions::SessionEntry<Handles>;
pub(crate) type SessionTable = crate::pool::sessions::SessionTable<Handles>;

/// A session and its worker handle.
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
    pub(crate) handle: Addr<WorkerHandle>,
    /// Path of Pi's session file. Empty if Pi has never reported one.
    pub(crate) pi_session_file: String,
}
