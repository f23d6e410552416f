//! Connections to the daemon for the servers of other protocols, `quack mcp` and `quack acp`.

use crate::connect::start_and_connect;
use crate::exit::explain;
use crate::output::CliOutput;
use crate::session_hint;
use crate::shell_keys;
use quackd_client::{ConnectError, Connector};
use std::sync::Arc;

/// Whether a server passes on the keys of model providers that its environment has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShellKeys {
    /// The user prompts quackd's own agent.
    PassOn,
    /// The user is another agent, which needs tools alone.
    Keep,
}

/// Returns the way to the daemon for a server that connects several times, with the advice of every subcommand if there
/// is no daemon.
pub(crate) fn connector(keys: ShellKeys, output: CliOutput) -> Connector {
    Arc::new(move || {
        Box::pin(async move {
            match start_and_connect(output).await {
                Ok(connection) => {
                    if keys == ShellKeys::PassOn {
                        shell_keys::pass_on(&connection.client, output).await;
                    }
                    Ok(connection.client)
                }
                Err(error) => Err(ConnectError(explain(&session_hint::explained(error).await))),
            }
        })
    })
}
