//! Connections to the daemon for the servers of other protocols, `quack mcp` and `quack acp`.

use crate::connect::{explained, start_and_connect};
use crate::exit::explain;
use crate::output::CliOutput;
use crate::session_hint;
use quackd_client::{ConnectError, Connector};
use std::sync::Arc;

/// Returns the way to the daemon for a server that connects several times, with the advice of every subcommand if there
/// is no daemon.
pub(crate) fn connector(output: CliOutput) -> Connector {
    Arc::new(move || {
        Box::pin(async move {
            match start_and_connect(output).await {
                Ok(connection) => Ok(connection.client),
                Err(error) => {
                    let error = explained(session_hint::explained(error).await).await;
                    Err(ConnectError(explain(&error)))
                }
            }
        })
    })
}
