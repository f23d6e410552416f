//! `quack metrics`: prints the daemon's metrics in Prometheus format.

use crate::connect::connect_only;
use crate::exit::ExitCode;
use crate::output::CliOutput;
use quackd_protocol::client::MetricsParams;

/// Runs the subcommand. Starts no daemon: a new one would have no metrics.
pub(crate) async fn run(output: CliOutput) -> anyhow::Result<ExitCode> {
    let daemon = connect_only(output).await?;
    let data = daemon.client.call(MetricsParams {}).await?;
    output.show(&data, || data.text.clone())?;
    Ok(ExitCode::Ok)
}
