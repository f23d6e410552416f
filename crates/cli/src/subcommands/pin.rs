//! `quack pin` and `quack unpin`: exempt a session's processes from idle eviction.

use crate::args::AnySessionArgs;
use crate::display;
use crate::exit::ExitCode;
use crate::output::CliOutput;
use crate::session_ref;
use quackd_protocol::client::PinParams;

/// Runs either subcommand.
pub(crate) async fn run(
    choice: AnySessionArgs,
    pinned: bool,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let (client, session) = session_ref::existing(&choice.into_which(), output).await?;
    session_ref::tell(&session, output);
    let params = PinParams { session_id: Some(session.session_id.0), pinned: Some(pinned) };
    let data = client.call(params).await?;

    output.show(&data, || {
        let name = display::name(&session.label);
        if data.pinned {
            format!("{name} stays until `quack unpin`.\n")
        } else {
            format!("{name} is ended again when nobody uses it.\n")
        }
    })?;
    Ok(ExitCode::Ok)
}
