//! A call of a tool: its request to the worker's actor, its result, and the output of a streamed call. Methods make the
//! requests, and `calls.rs` answers them.

use crate::errors::CallError;
use crate::events::CallInput;
use actix::prelude::*;
use quackd_protocol::CallId;
use quackd_protocol::client::HelloParams;
use quackd_protocol::output::OutputPiece;
use quackd_protocol::worker::{ToolReport, ToolUpdate};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Run one tool in this session's worker. Exactly one result arrives on the channel, shortly after the deadline at the
/// latest. [`call`](super::call) waits for it.
#[derive(Debug, Clone, Message)]
#[rtype(result = "Result<oneshot::Receiver<CallResult>, CallError>")]
pub(crate) struct CallTool {
    pub(crate) tool: String,
    /// The client's own id of the call, for followers.
    pub(crate) client_id: Option<String>,
    /// `quack.hello` of the caller, for followers.
    pub(crate) caller: Option<Arc<HelloParams>>,
    /// JSON text.
    pub(crate) arguments: String,
    pub(crate) safe_mode: bool,
    /// Whether the user allowed a command that safe mode does not run.
    pub(crate) approved: bool,
    pub(crate) deadline: Duration,
    /// Whether it starts a background job.
    pub(crate) background: bool,
    /// Receives the output of a streamed call: room for [`quackd_protocol::output::PIECE_CREDITS`].
    pub(crate) stream: Option<mpsc::Sender<Printed>>,
    /// Whether a streamed call passes its rows on while it finds them.
    pub(crate) stream_rows: bool,
    /// Directory of the caller, relative to the workspace.
    pub(crate) cwd: String,
    /// Input of a command that the client sends.
    pub(crate) input: Option<CallInput>,
    /// Ends the call when cancelled.
    pub(crate) cancel: Option<CancellationToken>,
    /// See [`CallPreview::agents`](crate::events::CallPreview::agents).
    pub(crate) agents: Option<String>,
}

/// Result of a tool.
#[derive(Debug)]
pub(crate) struct CallDone {
    /// A JSON string, as the worker wrote it.
    pub(crate) text: Box<RawValue>,
    /// Shorter text for followers, if `text` is long.
    pub(crate) shown: Option<Box<RawValue>>,
    /// Output that followers have not received.
    pub(crate) update: Option<ToolUpdate>,
    /// For a streamed call: its last output, and the end of its text.
    pub(crate) streamed: Option<(Vec<OutputPiece>, Option<Box<RawValue>>)>,
    pub(crate) report: ToolReport,
    pub(crate) data: Option<Box<RawValue>>,
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
