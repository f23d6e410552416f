//! `quack abort`: ends every call in flight of a session.

use crate::args::sessions::AbortArgs;
use crate::connect::{REPLY_TIMEOUT, connect_only};
use crate::display;
use crate::exit::Exit;
use crate::output::Output;
use crate::which;
use quackd_protocol::client::{AbortData, SessionParams};

/// Runs the verb. Starts no daemon: without one there is nothing to abort.
pub(crate) async fn run(args: AbortArgs, output: Output) -> anyhow::Result<Exit> {
    let daemon = connect_only(output).await?;
    let session_id = match args.session {
        Some(session) => Some(session),
        None => which::here(&daemon.client).await?,
    };
    let params = SessionParams { session_id };
    let data: AbortData = which::request(&daemon.client, "abort", params, REPLY_TIMEOUT).await?;
    if output.is_json() {
        output.document(&data)?;
    } else {
        output.text(&format!("Ended the calls of {}.\n", display::name(&data.session_name)))?;
    }
    Ok(Exit::Ok)
}
