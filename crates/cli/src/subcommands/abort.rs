//! `quack abort`: cancels all running calls of a session.

use crate::args::sessions::AbortArgs;
use crate::connect::{REPLY_TIMEOUT, connect_only};
use crate::display::{self, count};
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use crate::session_ref::{self, Missing, Wanted};
use quackd_protocol::client::{AbortData, SessionParams};

/// Runs the subcommand. Starts no daemon: without one there is no call to cancel.
pub(crate) async fn run(args: AbortArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let wanted = Wanted::of(&args.which.into_which())?;
    let daemon = connect_only(output).await?;
    let found = wanted.one(&daemon.client, Missing::Refuse).await?;
    session_ref::tell(&found, output);
    let params = SessionParams { session_id: Some(found.session_id.0) };
    let data: AbortData = daemon.client.request("abort", params, REPLY_TIMEOUT).await?;
    let label = display::name(&found.label);
    let text = match (data.calls, data.turn) {
        // For the protocol, an agent that waits for a prompt is enough.
        (Some(0), Some(false)) => return Err(CliError::failed(NOTHING).into()),
        (Some(0), Some(true)) => format!("Ended the turn of {label}.\n"),
        (Some(calls), Some(true)) => {
            format!("Ended {} and the turn of {label}.\n", count(calls, "call"))
        }
        (Some(calls), _) => format!("Ended {} of {label}.\n", count(calls, "call")),
        // An older daemon.
        (None, _) => format!("Ended the calls of {label}.\n"),
    };
    match output.is_json() {
        true => output.document(&data)?,
        false => output.text(&text)?,
    }
    Ok(ExitCode::Ok)
}

/// The daemon's words for a session without running work.
const NOTHING: &str = "No running operation to abort";
