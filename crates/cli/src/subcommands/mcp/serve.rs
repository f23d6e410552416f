//! `quack mcp`: serves one agent over stdin and stdout, or agents over HTTP. Nothing else goes to stdout.

use crate::args::mcp::McpServeArgs;
use crate::connect::{self, start_and_connect};
use crate::directory;
use crate::exit::{CliError, ExitCode, explain};
use crate::output::CliOutput;
use crate::session_hint;
use quackd_mcp::tool_list::Selection;
use quackd_mcp::{AgentServer, ConnectError, Connector, Gateways, Scope, ServeOptions};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub(super) async fn run(args: McpServeArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let selection = Selection::parse(&args.tools, args.safe).map_err(|e| CliError::usage(e.to_string()))?;
    let options = ServeOptions { scope: scope(&args)?, safe: args.safe, selection, keep_jobs: args.keep };
    let gateways = Gateways::new(options, connector(output));
    let server = AgentServer::new(gateways);
    quackd_mcp::serve_lines(server, tokio::io::stdin(), tokio::io::stdout(), CancellationToken::new()).await;
    Ok(ExitCode::Ok)
}

fn scope(args: &McpServeArgs) -> anyhow::Result<Scope> {
    Ok(match (&args.session, &args.workspace) {
        (Some(session), _) => Scope::Session(session.clone()),
        (None, Some(dir)) => Scope::Directory(directory::workspace(Some(dir), false)?.into()),
        (None, None) if args.any_workspace => Scope::Any(current()),
        (None, None) => Scope::Current(current()),
    })
}

/// Returns the working directory, or the root if it is gone. The root can be no workspace, so that the agent is told.
fn current() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_gone| PathBuf::from("/"))
}

/// Returns the way to the daemon, with the advice of every subcommand if there is none.
fn connector(output: CliOutput) -> Connector {
    Arc::new(move || {
        Box::pin(async move {
            match start_and_connect(output).await {
                Ok(connection) => Ok(connection.client),
                Err(error) => {
                    let error = connect::explained(session_hint::explained(error).await).await;
                    Err(ConnectError(explain(&error)))
                }
            }
        })
    })
}
