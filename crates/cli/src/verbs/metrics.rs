//! `quack metrics`: the daemon's counters as Prometheus reads them.

use crate::connect::{REPLY_TIMEOUT, connect_only};
use crate::exit::Exit;
use crate::output::Output;
use quackd_protocol::client::MetricsData;
use serde_json::json;

/// Runs the verb. Starts no daemon: what is not running has counted nothing.
pub(crate) async fn run(output: Output) -> anyhow::Result<Exit> {
    let daemon = connect_only(output).await?;
    let data: MetricsData =
        daemon.client.request("quack.metrics", json!({}), REPLY_TIMEOUT).await?;
    if output.is_json() {
        output.document(&data)?;
    } else {
        output.text(&data.text)?;
    }
    Ok(Exit::Ok)
}
