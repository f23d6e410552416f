//! Calls that their client named: it can cancel each of them, and have its output sent while it runs.
//!
//! Output goes to the one client that started the call. A client that does not read makes the command wait: a piece
//! gets its credit back when the client's connection has room for the next one.

use super::tool::MAX_CALL_ID_BYTES;
use super::{Caller, params};
use crate::errors::MethodError;
use crate::session::FoundSession;
use crate::session::pending_calls::Printed;
use crate::session::worker::ControlCalls;
use crate::wire::{self, Request};
use quackd_protocol::client::{ToldLine, ToolParams};
use quackd_protocol::output::{CancelData, CancelParams, OutputPiece, PIECE_CREDITS, ToolOutput};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// One named call, until it is answered.
#[derive(Debug)]
pub(super) struct NamedCall<'a> {
    caller: &'a Caller,
    id: String,
    cancel: CancellationToken,
    is_streamed: bool,
}

impl<'a> NamedCall<'a> {
    /// Registers the call if its client named it.
    ///
    /// # Errors
    /// The name is in use, or too long; a call without one cannot be streamed.
    pub(super) fn new(asked: &ToolParams, caller: &'a Caller) -> Result<Option<Self>, MethodError> {
        // A request without a connection gets its answer only.
        let is_streamed = asked.stream == Some(true) && caller.client.outbox.is_some();
        let Some(id) = asked.call_id.clone() else {
            return if is_streamed { Err(MethodError::StreamWithoutId) } else { Ok(None) };
        };
        if !(1..=MAX_CALL_ID_BYTES).contains(&id.len()) {
            return Err(MethodError::CallIdLength);
        }
        let calls = &caller.client.named_calls;
        let cancel = calls.add(&id, is_streamed).ok_or(MethodError::CallIdTaken)?;
        Ok(Some(Self { caller, id, cancel, is_streamed }))
    }

    /// Returns the token that cancels the call.
    pub(super) fn token(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// Returns the way of the call's output, if it is streamed.
    pub(super) fn channel(&self) -> Option<(mpsc::Sender<Printed>, mpsc::Receiver<Printed>)> {
        self.is_streamed.then(|| mpsc::channel(PIECE_CREDITS))
    }

    /// Waits for the call's answer and sends its client what it prints until then.
    pub(super) async fn stream_while<T>(
        &self,
        calling: impl Future<Output = T>,
        mut printed: mpsc::Receiver<Printed>,
        session: &FoundSession,
    ) -> T {
        tokio::pin!(calling);
        let answer = loop {
            tokio::select! {
                biased;
                Some(Printed { call_id, piece }) = printed.recv() => {
                    self.tell(piece, session).await;
                    // The handle ends with the daemon only.
                    session.handle.send(ControlCalls::OutputTaken(call_id)).await.ok();
                }
                answer = &mut calling => break answer,
            }
        };
        while let Some(Printed { piece, .. }) = printed.recv().await {
            self.tell(piece, session).await;
        }
        answer
    }

    /// Sends the client several pieces.
    pub(super) async fn tell_all(&self, pieces: Vec<OutputPiece>, session: &FoundSession) {
        for piece in pieces {
            self.tell(piece, session).await;
        }
    }

    async fn tell(&self, piece: OutputPiece, session: &FoundSession) {
        let Some(outbox) = &self.caller.client.outbox else { return };
        let kind = ToolOutput::NAME.to_owned();
        let line = ToldLine {
            event: ToolOutput::NAME,
            session_id: &session.session_id,
            data: ToolOutput { kind, tool_call_id: self.id.clone(), piece },
        };
        // A client that is gone has ended its call.
        outbox.send_event(wire::told(&line)).await.ok();
    }
}

impl Drop for NamedCall<'_> {
    fn drop(&mut self) {
        self.caller.client.named_calls.remove(&self.id);
    }
}

/// `quack.cancel`.
pub(super) async fn cancel(
    request: &mut Request,
    caller: &Caller,
) -> Result<CancelData, MethodError> {
    let CancelParams { call_id } = params(request, "quack.cancel")?;
    Ok(CancelData { found: caller.client.named_calls.cancel(&call_id) })
}
