//! `quack acp`: serves the sessions to one editor over stdin and stdout.

use crate::args::acp::AcpArgs;
use crate::connector::{ShellKeys, connector};
use crate::exit::ExitCode;
use crate::output::CliOutput;
use crate::session_file;
use std::io::{self, IsTerminal};
use tokio_util::sync::CancellationToken;

pub(crate) async fn run(args: &AcpArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    if io::stdin().is_terminal() {
        output.note(
            "waiting for an editor's messages on stdin; docs/agents.md has the configuration of editors",
        );
    }

    // The keys of the shell are passed on, because an editor may start the daemon.
    let (input, reply) = (tokio::io::stdin(), tokio::io::stdout());
    quackd_acp::serve_lines(
        connector(ShellKeys::PassOn, output),
        session_file::read_blocking,
        args.isolated,
        input,
        reply,
        CancellationToken::new(),
    )
    .await;
    Ok(ExitCode::Ok)
}
