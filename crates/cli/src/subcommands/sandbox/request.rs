//! Requests of `quack sandbox` about the selected session. Called by the subcommand and by `network`.

use crate::args::SessionArgs;
use crate::connect::start_and_connect;
use crate::output::CliOutput;
use crate::session_ref::{Missing, Wanted};
use quackd_protocol::client::{Method, SandboxSession};
use std::time::Duration;

/// Timeout for a worker's reply, and for a reply that needs the user's tools. The worker may check every file of a
/// workspace and has 30 s, and the tools have 35 s.
pub(super) const WORKER_TIMEOUT: Duration = Duration::from_secs(40);

/// Sends a request about the selected session. A request to the worker creates the session of a
/// directory, so that a workspace is audited before anything runs.
pub(super) async fn ask<M: Method>(
    choice: &SessionArgs,
    missing: Missing,
    params: impl FnOnce(SandboxSession) -> M,
    limit: Duration,
    output: CliOutput,
) -> anyhow::Result<M::Reply> {
    // Before the connection, so that wrong arguments start no daemon.
    let choice = Wanted::of(choice)?;
    let daemon = start_and_connect(output).await?;
    let session = choice.one(&daemon.client, missing).await?;
    Ok(daemon.client.call_within(params(SandboxSession::of(session.session_id.0)), limit).await?)
}
