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
    let daemon = connect_only(output).await?;
    let found = Wanted::reference(args.session).find(&daemon.client, Missing::UseActive).await?;
    if let Some(found) = &found {
        session_ref::tell(found, output);
    }
    let label = found.as_ref().map(|found| found.label.clone());
    let params = SessionParams { session_id: found.map(|found| found.session_id.0) };
    let data: AbortData = daemon.client.request("abort", params, REPLY_TIMEOUT).await?;
    if output.is_json() {
        output.document(&data)?;
    } else {
        output.text(&format!(
            "Ended the calls of {}.\n",
            display::name(label.as_ref().unwrap_or(&data.session_name))
        ))?;
    }
    Ok(ExitCode::Ok)
}
