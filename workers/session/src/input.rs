//! Requests the input of a running command from the supervisor, piece by piece. Called by the executor.

use crate::link::FrameSender;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quackd_process::{CommandInput, Wanted};
use quackd_protocol::CallId;
use quackd_protocol::output::InputPiece;
use quackd_protocol::worker::FromWorker;
use std::convert::Infallible;

/// Gives a requested piece to the command.
pub(crate) fn give(input: &CommandInput, piece: &InputPiece) {
    // The supervisor has checked it. Without its bytes the input would have a gap, so it ends.
    let text: Option<String> = serde_json::from_str(piece.bytes.get()).ok();
    match text.and_then(|text| STANDARD.decode(text).ok()) {
        Some(bytes) => input.give(bytes, piece.end),
        None => input.give(Vec::new(), true),
    }
}

/// Requests each piece that the command wants. Never returns.
pub(crate) async fn request(
    input: Option<&CommandInput>,
    call_id: &CallId,
    outbox: &FrameSender,
) -> Infallible {
    let Some(input) = input else { return std::future::pending().await };

    let mut last = 0;
    loop {
        let open = match input.wanted(last).await {
            Wanted::Piece(number) => {
                last = number;
                true
            }
            Wanted::Nothing => false,
        };
        outbox.send(&FromWorker::StdinWanted { call_id: call_id.clone(), open }).await;
        if !open {
            // The command wants no more, but the call goes on.
            return std::future::pending().await;
        }
    }
}
