//! `quack pin` and `quack unpin`: whose processes stay however long nobody uses them.

use crate::connect::{REPLY_TIMEOUT, start_and_connect};
use crate::display;
use crate::exit::Exit;
use crate::output::Output;
use crate::which;
use quackd_protocol::client::{PinData, PinParams};

/// Runs either verb.
pub(crate) async fn run(
    session: Option<String>,
    pinned: bool,
    output: Output,
) -> anyhow::Result<Exit> {
    let daemon = start_and_connect(output).await?;
    let session_id = match session {
        Some(session) => Some(session),
        None => which::here(&daemon.client).await?,
    };
    let params = PinParams { session_id, pinned: Some(pinned) };
    let data: PinData = which::request(&daemon.client, "quack.pin", params, REPLY_TIMEOUT).await?;
    if output.is_json() {
        output.document(&data)?;
    } else {
        let name = display::name(&data.session_name);
        output.text(&match data.pinned {
            true => format!("{name} stays until `quack unpin`.\n"),
            false => format!("{name} is ended again when nobody uses it.\n"),
        })?;
    }
    Ok(Exit::Ok)
}
