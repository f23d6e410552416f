//! `quack mcp`: serves the tools to agents, and edits their configuration.

mod install;
pub(crate) use install::AgentRemoval;
mod serve;

use crate::args::mcp::{McpArgs, McpVerb};
use crate::exit::ExitCode;
use crate::output::CliOutput;

pub(crate) async fn run(args: McpArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    match args.verb {
        None => Box::pin(serve::run(args.serve, output)).await,
        Some(McpVerb::Install(args)) => install::install(&args, output),
        Some(McpVerb::Uninstall(args)) => install::uninstall(&args, output),
    }
}
