//! One call of `quack tool` from its request to its answer: prints the output while it comes, and ends the call when
//! the user interrupts.

use super::print::Printer;
use crate::connect::REPLY_TIMEOUT;
use crate::output::{Output, Reader};
use crate::verbs::follow::live::Interrupts;
use quackd_client::{Client, ClientError, Events};
use quackd_protocol::client::{ToolParams, ToolResult};
use quackd_protocol::output::{CancelData, CancelParams};
use std::convert::Infallible;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The end of a call.
#[derive(Debug)]
pub(super) enum Ended {
    /// The call was answered.
    Answered(Box<ToolResult>),
    /// As `Answered`, but the reader of the output has left, which ended the call.
    Unread(Box<ToolResult>),
    /// The user interrupted. The result is absent if the user did not wait for it.
    Interrupted(Option<Box<ToolResult>>),
}

/// Makes the call and prints its output. The first interrupt cancels the call, the second one leaves.
///
/// # Errors
/// Of the request and of printing.
pub(super) async fn make(
    client: &Client,
    params: ToolParams,
    patience: Duration,
    printer: &mut Printer,
    interrupts: &mut Interrupts,
    output: Output,
) -> anyhow::Result<Ended> {
    let events = match params.stream {
        Some(true) => Some(client.events().await?),
        _ => None,
    };
    let call_id = params.call_id.clone().unwrap_or_default();
    let (cancel, answered) = (CancellationToken::new(), CancellationToken::new());
    let cancelling = cancel_when(&cancel, client, call_id, output);
    let calling = client.request::<_, ToolResult>("quack.tool", params, patience);
    let printing = print_until(&answered, events, printer);
    tokio::pin!(cancelling, calling, printing);
    let (mut result, mut reader) = (None, None);
    let mut is_interrupted = false;
    while result.is_none() || reader.is_none() {
        tokio::select! {
            biased;
            () = interrupts.next() => {
                if is_interrupted {
                    return Ok(Ended::Interrupted(None));
                }
                is_interrupted = true;
                output.note("ending the call; Ctrl-C again leaves at once");
                cancel.cancel();
            }
            never = &mut cancelling => match never {},
            printed = &mut printing, if reader.is_none() => {
                reader = Some(printed?);
                if reader == Some(Reader::Gone) {
                    cancel.cancel();
                }
            }
            ended = &mut calling, if result.is_none() => {
                result = Some(ended);
                // All of its output came before the answer.
                answered.cancel();
            }
        }
    }
    let result = result.transpose()?.map(Box::new);
    Ok(match (is_interrupted, reader, result) {
        (false, Some(Reader::There), Some(result)) => Ended::Answered(result),
        (false, _, Some(result)) => Ended::Unread(result),
        (_, _, result) => Ended::Interrupted(result),
    })
}

async fn cancel_when(
    cancel: &CancellationToken,
    client: &Client,
    call_id: String,
    output: Output,
) -> Infallible {
    cancel.cancelled().await;
    let params = CancelParams { call_id };
    let asked: Result<CancelData, ClientError> =
        client.request("quack.cancel", params, REPLY_TIMEOUT).await;
    if let Err(ClientError::Refused(why)) = asked {
        output.warning(&format!(
            "the call goes on ({why}); `quack abort` ends all calls of a session"
        ));
    }
    std::future::pending().await
}

async fn print_until(
    answered: &CancellationToken,
    events: Option<Events>,
    printer: &mut Printer,
) -> anyhow::Result<Reader> {
    let Some(mut events) = events else { return Ok(Reader::There) };
    loop {
        let event = tokio::select! {
            biased;
            event = events.recv() => event,
            () = answered.cancelled() => None,
        };
        let Some(event) = event else { return printer.finish().await };
        if printer.event(&event).await? == Reader::Gone {
            return Ok(Reader::Gone);
        }
    }
}
