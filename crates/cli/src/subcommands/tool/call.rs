//! Runs one call of `quack tool`: prints the output as it arrives, and cancels the call when the user interrupts.

use super::print::Printer;
use crate::connect::REPLY_TIMEOUT;
use crate::output::{CliOutput, StdoutState};
use crate::subcommands::follow::session_view::Interrupts;
use crate::tool_output::next_piece;
use quackd_client::{Client, ClientError, Events};
use quackd_protocol::client::{ToolParams, ToolResult};
use quackd_protocol::output::{CancelData, CancelParams};
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
    (interrupts, cancel): (&mut Interrupts, &CancellationToken),
    output: CliOutput,
) -> anyhow::Result<Ended> {
    let events = match params.stream {
        Some(true) => Some(client.events().await?),
        _ => None,
    };
    let call_id = params.call_id.clone().unwrap_or_default();
    let answered = CancellationToken::new();
    let cancelling = cancel_when(cancel, client, call_id, output);
    let calling = client.request::<_, ToolResult>("quack.tool", params, patience);
    let printing = print_until(&answered, events, printer);
    tokio::pin!(cancelling, calling, printing);
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
            never = &mut cancelling => match never {},
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
    let asked: Result<CancelData, ClientError> =
        client.request("quack.cancel", params, REPLY_TIMEOUT).await;
    if let Err(ClientError::Refused { text: why, .. }) = asked {
        output.warning(&format!(
            "the call continues ({why}); `quack abort` cancels all calls of a session"
        ));
    }
    std::future::pending().await
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
