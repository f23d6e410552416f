//! `quack mcp install` and `uninstall`.

use crate::args::mcp::{McpInstallArgs, McpUninstallArgs};
use crate::exit::ExitCode;
use crate::output::CliOutput;

pub(super) fn install(_args: &McpInstallArgs, _output: CliOutput) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not written yet")
}

pub(super) fn uninstall(_args: &McpUninstallArgs, _output: CliOutput) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not written yet")
}
