//! One call of a tool.

use crate::live::Watch;
use quackd_process::{CommandInput, Flow};
use quackd_protocol::worker::CallSpec;
use std::rc::Rc;
use tokio_util::sync::CancellationToken;

/// One request to run one tool. The default has no name and no time.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// The call as the frame of the supervisor specifies it.
    pub spec: CallSpec,
    /// Token that cancels the call.
    pub cancel: CancellationToken,
    /// Receiver of the call's output while it runs.
    pub watch: Option<Rc<dyn Watch>>,
    /// Reader of a command's whole output, and of the rows of a search if the call requests them.
    pub flow: Option<Flow>,
    /// Input of a command. `None`: it reads `/dev/null`.
    pub input: Option<CommandInput>,
}
