//! Reads the streamed output of a call. Used by `quack tool` and by the searches.

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use quackd_client::{Event, Events};
use quackd_protocol::output::{OutputStream, ToolOutput};
use serde::Deserialize;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio_util::sync::CancellationToken;

/// Data of an event. The text is part of the event's.
#[derive(Deserialize)]
struct Piece<'a> {
    stream: OutputStream,
    bytes: &'a str,
}

/// Returns an id for a call, which followers of the session see too.
pub(crate) fn call_id() -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("quack-{}-{}", std::process::id(), since_epoch.as_millis())
}

/// Returns the next output of the client's only streamed call. `None` if the call is `answered`, because all output
/// precedes the reply, or if the connection was closed. Cancel-safe.
///
/// # Errors
/// If an event cannot be read.
pub(crate) async fn next_piece(
    events: &mut Events,
    answered: &CancellationToken,
) -> anyhow::Result<Option<(OutputStream, Vec<u8>)>> {
    loop {
        let event = tokio::select! {
            biased;
            event = events.recv() => event,
            () = answered.cancelled() => None,
        };
        let Some(event) = event else { return Ok(None) };
        if let Some(piece) = piece(&event)? {
            return Ok(Some(piece));
        }
    }
}

/// Reads the output in an event. `None` for another event.
///
/// # Errors
/// If the event cannot be read.
pub(crate) fn piece(event: &Event) -> anyhow::Result<Option<(OutputStream, Vec<u8>)>> {
    if event.name != ToolOutput::NAME {
        return Ok(None);
    }
    let data = event.data.as_deref().context("an output event without data")?;
    let Piece { stream, bytes } =
        serde_json::from_str(data.get()).context("cannot read an output event")?;
    let bytes = STANDARD.decode(bytes).context("an output event is not base64")?;
    Ok(Some((stream, bytes)))
}
