//! One call of a tool.

use crate::live::Watch;
use quackd_process::{CommandInput, Flow};
use quackd_protocol::worker::CallOrigin;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// One request to run one tool. The default has no name and no time.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// Unique among the calls of this process. Names the spill file of a long output.
    pub call_id: String,
    /// Tool name as the client sent it.
    pub tool: String,
    /// Arguments as JSON text, as the client sent them.
    pub arguments: String,
    /// Time that the call may take from now on.
    pub deadline: Duration,
    /// Allow only calls that change nothing, regardless of the session's policy.
    pub safe_mode: bool,
    /// Whether the user allowed a command that safe mode would refuse.
    pub approved: bool,
    /// Token that cancels the call.
    pub cancel: CancellationToken,
    /// Receiver of the call's output while it runs.
    pub watch: Option<Rc<dyn Watch>>,
    /// Reader of a command's whole output.
    pub flow: Option<Flow>,
    /// Input of a command. `None`: it reads `/dev/null`.
    pub input: Option<CommandInput>,
    /// Directory of the caller, relative to the workspace. Empty: the workspace.
    pub cwd: PathBuf,
    /// Whether `flow` also takes the rows of a search.
    pub stream_rows: bool,
    /// Origin of the call. The records of changed files have it.
    pub origin: CallOrigin,
}
