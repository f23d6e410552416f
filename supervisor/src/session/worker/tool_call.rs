//! A call of a tool: its request to the worker's actor, its result, and the output of a streamed call. Methods make the
//! requests, and `calls.rs` answers them.

use crate::errors::CallError;
use crate::events::{CallInput, SessionCall};
use actix::prelude::*;
use quackd_protocol::CallId;
use quackd_protocol::output::OutputPiece;
use quackd_protocol::worker::ToolFinished;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Run one tool in this session's worker. Exactly one result arrives on the channel, shortly after the deadline at the
/// latest. [`call`](super::call) waits for it.
#[derive(Debug, Clone, Message)]
#[rtype(result = "Result<oneshot::Receiver<CallResult>, CallError>")]
pub(crate) struct CallTool {
    pub(crate) call: SessionCall,
    /// Receives the output of a streamed call: room for [`quackd_protocol::output::PIECE_CREDITS`].
    pub(crate) stream: Option<mpsc::Sender<Printed>>,
    /// Input of a command that the client sends.
    pub(crate) input: Option<CallInput>,
    /// Ends the call when cancelled.
    pub(crate) cancel: Option<CancellationToken>,
}

/// Result of a tool.
#[derive(Debug)]
pub(crate) struct CallDone {
    /// The frame of the worker. It has pieces of output and an end of the text for a streamed call only.
    pub(crate) finished: ToolFinished,
    /// Line to add to the text, because of an older policy of the worker.
    pub(crate) about_policy: Option<String>,
}

/// Result of a call.
pub(crate) type CallResult = Result<CallDone, CallError>;

/// The next output of a streamed call.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) call_id: CallId,
    pub(crate) piece: OutputPiece,
}
