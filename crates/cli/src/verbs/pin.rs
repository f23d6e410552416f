//! `quack pin` and `quack unpin`: whose processes stay however long nobody uses them.

use crate::connect::{REPLY_TIMEOUT, start_and_connect};
use crate::display;
use crate::exit::Exit;
use crate::output::Output;
use crate::which::{self, Missing, Wanted};
use quackd_protocol::client::{PinData, PinParams};

/// Runs either verb.
pub(crate) async fn run(
    session: Option<String>,
    pinned: bool,
    output: Output,
) -> anyhow::Result<Exit> {
    let daemon = start_and_connect(output).await?;
    let found = Wanted::reference(session).one(&daemon.client, Missing::UseActive).await?;
    which::tell(&found, output);
    let params = PinParams { session_id: Some(found.session_id.0), pinned: Some(pinned) };
    let data: PinData = daemon.client.request("quack.pin", params, REPLY_TIMEOUT).await?;
    if output.is_json() {
        output.document(&data)?;
    } else {
        let name = display::name(&found.label);
        output.text(&match data.pinned {
            true => format!("{name} stays until `quack unpin`.\n"),
            false => format!("{name} is ended again when nobody uses it.\n"),
        })?;
    }
    Ok(Exit::Ok)
}
