//! `quack abort`: cancels all running calls of a session.

use crate::args::sessions::AbortArgs;
use crate::connect::{REPLY_TIMEOUT, connect_only};
use crate::display;
use crate::exit::ExitCode;
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
    if output.is_json() {
        output.document(&data)?;
    } else {
        output.text(&format!("Ended the calls of {}.\n", display::name(&found.label)))?;
    }
    Ok(ExitCode::Ok)
}
