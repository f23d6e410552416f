//! Calls to the daemon about one session.

use quackd_client::{Client, ClientError};
use quackd_protocol::client::{AbortParams, AgentData, AgentParams, SessionDeleteParams};
use serde_json::Value;
use std::time::Duration;

/// Timeout of a command, longer than the daemon's own.
pub(super) const COMMAND_TIMEOUT: Duration = Duration::from_secs(620);

/// Sends a command to the agent of a session.
pub(super) async fn send(
    client: &Client,
    session: &str,
    command: Value,
) -> Result<AgentData, ClientError> {
    let params = AgentParams { session_id: session.into(), command };
    client.call_within(params, COMMAND_TIMEOUT).await
}

/// Deletes a session, also with running work.
pub(super) async fn delete(client: &Client, id: String) {
    let params = SessionDeleteParams { session_id: id.into(), force: Some(true) };
    // The session may be gone.
    client.call(params).await.ok();
}

/// Ends the turn and the calls of a session.
pub(super) async fn abort(client: &Client, session: &str) {
    // There may be nothing to abort.
    client.call(AbortParams::of(session)).await.ok();
}

/// Returns the error of a command that this program refuses itself.
pub(super) fn refused(text: impl Into<String>) -> ClientError {
    ClientError::Refused { text: text.into(), code: None }
}
