//! The limit for the disk space of the copy of an isolated session: which calls run above it.

use super::FoundSession;
use crate::errors::{CallError, CopyExcess};
use crate::events::SessionCall;
use crate::pool::copy_sizes::{CopySizes, CopyWriter};
use quackd_protocol::SessionId;
use quackd_protocol::tools::UNDO;

/// Permission of a call to run. The copy is sampled while the call runs.
#[derive(Debug, Default)]
pub(crate) struct CopyPermit {
    /// `None` for a call that cannot write into a copy.
    writer: Option<CopyWriter>,
    session: Option<SessionId>,
}

/// Permits a call, or refuses it because the copy of its session is full.
///
/// Commands are the only way to free space, so they may run above the limit: those of the user always, those of agents
/// until [`CopyExcess::refuses_commands`].
pub(crate) async fn permit(
    session: &FoundSession,
    call: &SessionCall,
    copies: &CopySizes,
) -> Result<CopyPermit, CallError> {
    let is_of_copy = session.isolated.is_some() && call.may_change_files();
    if !is_of_copy || call.is_dry_run() {
        return Ok(CopyPermit::default());
    }
    let id = &session.session_id;
    // An undo frees as much as it takes, so it is never refused.
    if call.spec.tool == UNDO.name {
        return Ok(CopyPermit { writer: Some(copies.begin_call(id)), session: None });
    }
    let excesses = copies.excesses(id).await;
    let is_command = call.runs_commands() && !call.facts.background;
    // Only agents introduce themselves.
    let by_agent = call.agents.is_some() || call.caller.is_some();
    let refuses = |excess: &CopyExcess| !is_command || by_agent && excess.refuses_commands();
    if let Some(excess) = excesses.into_iter().find(refuses) {
        return Err(CallError::CopyFull(excess));
    }
    let session = is_command.then(|| id.clone());
    Ok(CopyPermit { writer: Some(copies.begin_call(id)), session })
}

impl CopyPermit {
    /// Ends the call. Returns a line for its answer if it is a command and the copy exceeds a limit.
    pub(crate) async fn line(self, copies: &CopySizes) -> Option<String> {
        drop(self.writer);
        let excesses = copies.excesses(&self.session?).await;
        excesses.first().map(|excess| excess.line())
    }
}
