//! Sends the complete output of a streamed call to the supervisor while its command or search runs.
//!
//! Each piece costs one credit of the call. The supervisor returns the credit once the client's connection has room,
//! so a client that does not read makes the call wait. Called by the executor.

use crate::link::FrameSender;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use quackd_process::{Flow, FlowPiece, StreamName};
use quackd_protocol::CallId;
use quackd_protocol::output::{MAX_PIECE_BYTES, OutputPiece, OutputStream, PIECE_CREDITS};
use quackd_protocol::worker::FromWorker;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Time in which the first rows of a search may become a whole piece. A search finds thousands of rows in it.
const GATHER: Duration = Duration::from_millis(5);

/// Output of one streamed call. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Streaming {
    flow: Flow,
    credits: Rc<Semaphore>,
    /// Whether the output is rows, which need not be sent at once.
    gathers: bool,
}

impl Streaming {
    pub(crate) fn new(gathers: bool) -> Self {
        let credits = Rc::new(Semaphore::new(PIECE_CREDITS));
        Self { flow: Flow::default(), credits, gathers }
    }

    /// Returns the buffer for the command's output.
    pub(crate) fn flow(&self) -> Flow {
        self.flow.clone()
    }

    /// Returns one credit.
    pub(crate) fn taken(&self) {
        if self.credits.available_permits() < PIECE_CREDITS {
            self.credits.add_permits(1);
        }
    }

    /// Takes the output that was not sent before the call finished.
    pub(crate) fn rest(&self) -> Vec<OutputPiece> {
        std::iter::from_fn(|| self.flow.take(MAX_PIECE_BYTES)).filter_map(piece).collect()
    }
}

/// Sends the output of a streamed call piece by piece. Never returns. Dropping the future loses no output: a piece is
/// taken in the same step that queues its frame.
pub(crate) async fn forward(
    stream: Option<&Streaming>,
    call_id: &CallId,
    outbox: &FrameSender,
) -> Infallible {
    let Some(stream) = stream else { return std::future::pending().await };
    loop {
        stream.flow.changed().await;
        if stream.gathers {
            // At the end of the time, the rows found so far are sent.
            timeout(GATHER, stream.flow.gathered()).await.ok();
        }

        // The semaphore is never closed.
        let Ok(credit) = stream.credits.acquire().await else {
            return std::future::pending().await;
        };

        // Taken only when the queue has room, so that a piece is never lost between the two.
        let next = || {
            let piece = piece(stream.flow.take(MAX_PIECE_BYTES)?)?;
            credit.forget();
            Some(FromWorker::ToolOutput { call_id: call_id.clone(), piece })
        };
        outbox.send_latest(next).await;
    }
}

fn piece(piece: FlowPiece) -> Option<OutputPiece> {
    let stream = match piece.stream {
        StreamName::Stdout => OutputStream::Stdout,
        StreamName::Stderr => OutputStream::Stderr,
        StreamName::Rows => OutputStream::Rows,
    };

    // Room for the quotation marks too, so that the text is not copied.
    let mut base64 = String::with_capacity(piece.bytes.len().div_ceil(3) * 4 + 2);
    base64.push('"');
    STANDARD.encode_string(piece.bytes, &mut base64);
    base64.push('"');
    // Base64 between quotation marks is always JSON.
    OutputPiece::new(stream, base64).ok()
}
