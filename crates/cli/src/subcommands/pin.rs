//! `quack pin` and `quack unpin`: exempt a session's processes from idle eviction.

use crate::args::AnySessionArgs;
use crate::connect::start_and_connect;
use crate::display;
use crate::exit::ExitCode;
use crate::output::CliOutput;
use crate::session_ref::{self, Missing, Wanted};
use quackd_protocol::client::PinParams;

/// Runs either subcommand.
pub(crate) async fn run(
    choice: AnySessionArgs,
    pinned: bool,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let reference = Wanted::of(&choice.into_which())?;
    let daemon = start_and_connect(output).await?;
    let found = reference.one(&daemon.client, Missing::Refuse).await?;
    session_ref::tell(&found, output);
    let params = PinParams { session_id: Some(found.session_id.0), pinned: Some(pinned) };
    let data = daemon.client.call(params).await?;

    if output.is_json() {
        output.document(&data)?;
    } else {
        let name = display::name(&found.label);
        output.text(&if data.pinned {
            format!("{name} stays until `quack unpin`.\n")
        } else {
            format!("{name} is ended again when nobody uses it.\n")
        })?;
    }
    Ok(ExitCode::Ok)
}
