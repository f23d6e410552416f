//! `quack detach`: detaches all clients from the terminals of a session.

use crate::args::terminals::DetachArgs;
use crate::display::{self, count};
use crate::exit::ExitCode;
use crate::output::CliOutput;
use crate::session_ref;
use quackd_protocol::client::TermDetachParams;

/// Runs the subcommand. The programs continue.
pub(crate) async fn run(args: DetachArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let (choice, terminal_id) = args.terminal.take()?;
    let (client, session) = session_ref::existing(&choice, output).await?;

    let session_id = Some(session.session_id.0);
    let params = TermDetachParams { session_id, terminal_id, all: Some(true) };
    let data = client.call(params).await?;

    output.show(&data, || {
        let label = display::name(display::label(&session.label, &session.session_name));
        format!("detached {} from {label}\n", count(data.detached, "client"))
    })?;
    Ok(ExitCode::Ok)
}
