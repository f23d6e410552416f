//! `quack abort`: ends every call in flight of a session.

use crate::args::sessions::AbortArgs;
use crate::connect::{REPLY_TIMEOUT, connect_only};
use crate::display;
use crate::exit::Exit;
use crate::output::Output;
use crate::which::{self, Missing, Wanted};
use quackd_protocol::client::{AbortData, SessionParams};

/// Runs the verb. Starts no daemon: without one there is nothing to abort.
pub(crate) async fn run(args: AbortArgs, output: Output) -> anyhow::Result<Exit> {
    let daemon = connect_only(output).await?;
    let found = Wanted::reference(args.session).find(&daemon.client, Missing::UseActive).await?;
    if let Some(found) = &found {
        which::tell(found, output);
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
    Ok(Exit::Ok)
}
