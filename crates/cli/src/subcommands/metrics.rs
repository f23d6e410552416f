//! `quack metrics`: prints the daemon's metrics in Prometheus format.

use crate::connect::{REPLY_TIMEOUT, connect_only};
use crate::exit::ExitCode;
use crate::output::CliOutput;
use quackd_protocol::client::MetricsData;
use serde_json::json;

/// Runs the subcommand. Starts no daemon: a new one would have no metrics.
pub(crate) async fn run(output: CliOutput) -> anyhow::Result<ExitCode> {
    let daemon = connect_only(output).await?;
    let data: MetricsData =
        daemon.client.request("quack.metrics", json!({}), REPLY_TIMEOUT).await?;
    if output.is_json() {
        output.document(&data)?;
    } else {
        output.text(&data.text)?;
    }
    Ok(ExitCode::Ok)
}
