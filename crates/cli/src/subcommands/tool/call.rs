//! Runs one call of `quack tool`: prints the output as it arrives, and cancels the call when the user interrupts.

use super::print::Printer;
use crate::output::{CliOutput, StdoutState};
use crate::piped_stdin;
use crate::subcommands::follow::session_view::Interrupts;
use crate::tool_output::next_piece;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quackd_client::{Client, ClientError, Events};
use quackd_protocol::client::{ToolParams, ToolResult};
use quackd_protocol::output::{CancelParams, MAX_PIECE_BYTES, StdinParams};
use serde_json::value::RawValue;
use std::convert::Infallible;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Outcome of a call.
#[derive(Debug)]
pub(super) enum Ended {
    /// The call has a result.
    Answered(Box<ToolResult>),
    /// Like `Answered`, but the reader of the output closed the pipe, which canceled the call.
    Unread(Box<ToolResult>),
    /// The user interrupted. `None` if the user did not wait for the result.
    Interrupted(Option<Box<ToolResult>>),
}

/// Runs the call and prints its output. The first interrupt cancels the call with `cancel`, the second one exits.
///
/// # Errors
/// Those of the request and of printing.
pub(super) async fn make(
    client: &Client,
    params: ToolParams,
    patience: Duration,
    printer: &mut Printer,
    interrupts: &mut Interrupts,
    cancel: &CancellationToken,
    output: CliOutput,
) -> anyhow::Result<Ended> {
    let events = match params.stream {
        Some(true) => Some(client.events().await?),
        _ => None,
    };
    let call_id = params.call_id.clone().unwrap_or_default();

    let answered = CancellationToken::new();
    // Created before the call, so that no output is missed.
    let feeding =
        feed(client, (params.stdin == Some(true)).then(|| call_id.clone()), patience, output);
    let cancelling = cancel_when(cancel, client, call_id, output);
    let calling = client.call_within(params, patience);
    let printing = print_until(&answered, events, printer);
    tokio::pin!(feeding, cancelling, calling, printing);

    let (mut result, mut reader) = (None, None);
    let mut is_interrupted = false;
    while result.is_none() || reader.is_none() {
        tokio::select! {
            biased;
            _ = interrupts.next() => {
                if is_interrupted {
                    return Ok(Ended::Interrupted(None));
                }
                is_interrupted = true;
                output.note("canceling the call; press Ctrl-C again to exit at once");
                cancel.cancel();
            }
            printed = &mut printing, if reader.is_none() => {
                reader = Some(printed?);
                if reader == Some(StdoutState::Gone) {
                    cancel.cancel();
                }
            }
            ended = &mut calling, if result.is_none() => {
                result = Some(ended);
                // All output precedes the reply.
                answered.cancel();
            }
            // After the call, whose request the daemon reads first: it would run a call that comes after its
            // cancellation.
            never = &mut cancelling => match never {},
            never = &mut feeding => match never {},
        }
    }

    let result = result.transpose()?.map(Box::new);
    Ok(match (is_interrupted, reader, result) {
        (false, Some(StdoutState::There), Some(result)) => Ended::Answered(result),
        (false, _, Some(result)) => Ended::Unread(result),
        (_, _, result) => Ended::Interrupted(result),
    })
}

async fn cancel_when(
    cancel: &CancellationToken,
    client: &Client,
    call_id: String,
    output: CliOutput,
) -> Infallible {
    cancel.cancelled().await;
    let params = CancelParams { call_id };
    let reply = client.call(params).await;

    if let Err(ClientError::Refused { text: reason, .. }) = reply {
        output.warning(&format!(
            "the call continues ({reason}); `quack abort` cancels all calls of a session"
        ));
    }
    std::future::pending().await
}

/// Sends stdin to the command of the call, until either of them ends.
async fn feed(
    client: &Client,
    call_id: Option<String>,
    patience: Duration,
    output: CliOutput,
) -> Infallible {
    let Some(call_id) = call_id else { return std::future::pending().await };
    let mut pieces = piped_stdin::pieces(MAX_PIECE_BYTES);
    loop {
        let (bytes, end) = match pieces.recv().await {
            Some(Ok(bytes)) => (bytes, false),
            Some(Err(error)) => {
                output.warning(&format!("cannot read stdin: {error}; the command reads its end"));
                (Vec::new(), true)
            }
            None => (Vec::new(), true),
        };

        let sent = send_piece(client, &call_id, &bytes, end, patience).await;
        if end || !sent.is_ok_and(|is_open| is_open) {
            // An error of the connection is also one of the call.
            return std::future::pending().await;
        }
    }
}

/// Sends one piece. Returns whether the command takes another one, as soon as it has taken this one.
async fn send_piece(
    client: &Client,
    call_id: &str,
    bytes: &[u8],
    end: bool,
    patience: Duration,
) -> anyhow::Result<bool> {
    // Base64 between quotation marks is JSON.
    let bytes = RawValue::from_string(format!("\"{}\"", STANDARD.encode(bytes)))?;
    let params = StdinParams { call_id: call_id.to_owned(), bytes, end };
    let data = client.call_within(params, patience).await?;
    Ok(data.open)
}

async fn print_until(
    answered: &CancellationToken,
    events: Option<Events>,
    printer: &mut Printer,
) -> anyhow::Result<StdoutState> {
    let Some(mut events) = events else { return Ok(StdoutState::There) };
    while let Some((stream, bytes)) = next_piece(&mut events, answered).await? {
        if printer.piece(stream, bytes).await? == StdoutState::Gone {
            return Ok(StdoutState::Gone);
        }
    }
    printer.finish().await
}
