//! The limit for the disk space of the copy of an isolated session: which calls run above it.

use super::FoundSession;
use super::worker::{CallTool, may_change_files, object_of};
use crate::errors::{CallError, CopyExcess};
use crate::pool::copy_sizes::{CopySizes, CopyWriter};
use quackd_protocol::SessionId;
use quackd_protocol::tools::{
    REPLACE, ReplaceArguments, ReplaceContentArguments, UNDO, runs_commands,
};

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
    call: &CallTool,
    copies: &CopySizes,
) -> Result<CopyPermit, CallError> {
    let tool = &call.tool;
    let is_of_copy = session.isolated.is_some() && may_change_files(tool);
    if !is_of_copy || is_dry_run(tool, &call.arguments) {
        return Ok(CopyPermit::default());
    }
    let id = &session.session_id;
    // An undo frees as much as it takes, so it is never refused.
    if tool == UNDO.name {
        return Ok(CopyPermit { writer: Some(copies.begin_call(id)), session: None });
    }
    let excesses = copies.excesses(id).await;
    let is_command = runs_commands(tool) && !call.background;
    // Only agents introduce themselves.
    let by_agent = call.agents.is_some() || call.caller.is_some();
    let refuses = |excess: &CopyExcess| !is_command || by_agent && excess.refuses_commands();
    if let Some(excess) = excesses.into_iter().find(refuses) {
        return Err(CallError::CopyFull(excess));
    }
    let session = is_command.then(|| id.clone());
    Ok(CopyPermit { writer: Some(copies.begin_call(id)), session })
}

/// Whether a call only shows what it would replace.
fn is_dry_run(tool: &str, arguments: &str) -> bool {
    let object = || object_of(arguments);
    let dry_run = if tool == REPLACE.name {
        object().map(|object| ReplaceArguments::of(&object).dry_run)
    } else if tool == "replace_content" {
        object().map(|object| ReplaceContentArguments::of(&object).dry_run)
    } else {
        None
    };
    matches!(dry_run, Some(Ok(true)))
}

impl CopyPermit {
    /// Ends the call. Returns a line for its answer if it is a command and the copy exceeds a limit.
    pub(crate) async fn line(self, copies: &CopySizes) -> Option<String> {
        drop(self.writer);
        let excesses = copies.excesses(&self.session?).await;
        excesses.first().map(|excess| excess.line())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_replacement_can_be_a_dry_run() {
        let dry = r#"{"pattern":"a","replacement":"b","dry_run":true}"#;
        assert!(is_dry_run("replace", dry) && is_dry_run("replace_content", dry));
        assert!(is_dry_run("replace", r#"{"preview":true}"#));
        for arguments in ["{}", r#"{"dry_run":true,"dry_run":false}"#, "a"] {
            assert!(!is_dry_run("replace", arguments), "{arguments}");
        }
        assert!(!is_dry_run("write_file", dry));
    }
}
