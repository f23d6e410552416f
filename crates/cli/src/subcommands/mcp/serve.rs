//! `quack mcp`: serves one agent over stdin and stdout, or agents over HTTP.

use crate::args::mcp::McpServeArgs;
use crate::exit::ExitCode;
use crate::output::CliOutput;

pub(super) async fn run(_args: McpServeArgs, _output: CliOutput) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not written yet")
}
