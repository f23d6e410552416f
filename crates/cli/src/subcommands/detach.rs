//! `quack detach`: detaches all clients from the terminals of a session.

use super::attach_terminal::session_choice::{self, ChosenTerminal};
use crate::args::terminals::DetachArgs;
use crate::display::{self, count};
use crate::exit::ExitCode;
use crate::output::CliOutput;
use quackd_protocol::client::TermDetachParams;

/// Runs the subcommand. The programs continue.
pub(crate) async fn run(args: DetachArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let ChosenTerminal { client, session, terminal: terminal_id } =
        session_choice::chosen(args.terminal, output).await?;

    let session_id = Some(session.session_id.0);
    let params = TermDetachParams { session_id, terminal_id, all: Some(true) };
    let data = client.call(params).await?;

    output.show(&data, || {
        let label = display::name(display::label(&session.label, &session.session_name));
        format!("detached {} from {label}\n", count(data.detached, "client"))
    })?;
    Ok(ExitCode::Ok)
}
