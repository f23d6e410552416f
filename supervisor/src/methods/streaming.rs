//! Named calls: their client can cancel each of them, and exchange input and output with it while the call runs.
//!
//! Output goes only to the client that started the call. If the client does not read, the command blocks: a piece of
//! output returns its credit when the client's connection has space for the next one.

use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::events::{CallInput, InputRequest, call_input};
use crate::session::FoundSession;
use crate::session::worker::OutputTaken;
use crate::session::worker::Printed;
use crate::wire;
use quackd_protocol::client::{ToldLine, ToolParams};
use quackd_protocol::output::{
    CancelData, CancelParams, InputPiece, MAX_PIECE_BYTES, OutputPiece, PIECE_CREDITS, StdinData,
    StdinParams, ToolOutput,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Maximum length of a client's call id in events, in bytes.
pub(super) const MAX_CALL_ID_BYTES: usize = 200;

/// A named call without a reply.
#[derive(Debug)]
pub(super) struct NamedCall<'a> {
    caller: &'a Caller,
    id: String,
    /// Cancels the call.
    pub(super) cancel: CancellationToken,
    is_streamed: bool,
    /// The input that the client sends.
    pub(super) input: Option<CallInput>,
}

impl<'a> NamedCall<'a> {
    /// Registers the call if its client named it.
    ///
    /// # Errors
    /// The name is in use or too long, or a streamed call has no name.
    pub(super) fn new(
        params: &ToolParams,
        caller: &'a Caller,
    ) -> Result<Option<Self>, MethodError> {
        // A request without a connection only gets its reply.
        let is_streamed = params.stream == Some(true) && caller.client.outbox.is_some();
        let has_input = params.stdin == Some(true) && caller.client.outbox.is_some();

        let Some(id) = params.call_id.clone() else {
            return match (is_streamed, has_input) {
                (true, _) => Err(MethodError::StreamWithoutId),
                (false, true) => Err(MethodError::StdinWithoutId),
                (false, false) => Ok(None),
            };
        };
        if !(1..=MAX_CALL_ID_BYTES).contains(&id.len()) {
            return Err(MethodError::CallIdLength);
        }

        let (sender, input) = has_input.then(call_input).unzip();
        let cancel = caller.client.named_calls.add(&id, is_streamed, sender);
        let cancel = cancel.ok_or(MethodError::CallIdTaken)?;
        Ok(Some(Self { caller, id, cancel, is_streamed, input }))
    }

    /// Returns the channel for the call's output, if it is streamed.
    pub(super) fn channel(&self) -> Option<(mpsc::Sender<Printed>, mpsc::Receiver<Printed>)> {
        self.is_streamed.then(|| mpsc::channel(PIECE_CREDITS))
    }

    /// Waits for the call's result, and sends its output to the client until then.
    pub(super) async fn stream_while<T>(
        &self,
        calling: impl Future<Output = T>,
        mut printed: mpsc::Receiver<Printed>,
        session: &FoundSession,
    ) -> T {
        tokio::pin!(calling);
        let answer = loop {
            tokio::select! {
                // Output first: the result ends the call.
                biased;
                Some(Printed { call_id, piece }) = printed.recv() => {
                    self.send(piece, session).await;
                    // The actor stops only at shutdown.
                    session.actors.worker.send(OutputTaken(call_id)).await.ok();
                }
                answer = &mut calling => break answer,
            }
        };

        // The worker may have sent its last pieces together with the result. The reply must come after them.
        while let Some(Printed { piece, .. }) = printed.recv().await {
            self.send(piece, session).await;
        }
        answer
    }

    /// Sends a piece of output to the client, and waits until its connection has space for the next one.
    pub(super) async fn send(&self, piece: OutputPiece, session: &FoundSession) {
        let Some(outbox) = &self.caller.client.outbox else { return };
        let kind = ToolOutput::NAME.to_owned();
        let line = ToldLine {
            event: ToolOutput::NAME,
            session_id: &session.session_id,
            data: ToolOutput { kind, tool_call_id: self.id.clone(), piece },
        };
        // If the client has disconnected, its call was canceled.
        outbox.send_event(wire::event(&line)).await.ok();
    }
}

impl Drop for NamedCall<'_> {
    fn drop(&mut self) {
        self.caller.client.named_calls.remove(&self.id);
    }
}

impl Serve<CancelParams> for Caller {
    async fn serve(&self, params: CancelParams) -> Result<CancelData, MethodError> {
        let CancelParams { call_id } = params;
        Ok(CancelData { found: self.client.named_calls.cancel(&call_id) })
    }
}

impl Serve<StdinParams> for Caller {
    /// `quack.stdin`. The reply comes when the command can take the next piece.
    async fn serve(&self, params: StdinParams) -> Result<StdinData, MethodError> {
        let StdinParams { call_id, bytes, end } = params;
        let piece = InputPiece { bytes, end };
        if !piece.is_sound() {
            return Err(MethodError::InputPiece(MAX_PIECE_BYTES));
        }

        let Some(input) = self.client.named_calls.input(&call_id) else {
            return Ok(StdinData { open: false });
        };

        let (taken, is_open) = oneshot::channel();
        // Without a reader, the call has ended or its command has closed its stdin.
        let open = match input.send(InputRequest { piece, taken }).await {
            Ok(()) => is_open.await.unwrap_or(false),
            Err(_closed) => false,
        };
        Ok(StdinData { open })
    }
}
