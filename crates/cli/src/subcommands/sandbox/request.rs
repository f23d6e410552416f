//! Requests of `quack sandbox` about the selected session. Called by the subcommand and by `network`.

use crate::connect::start_and_connect;
use crate::output::CliOutput;
use crate::session_ref::{self, Missing, Wanted};
use quackd_protocol::client::{Method, SandboxParams};
use std::time::Duration;

/// Timeout for a worker's reply, and for a reply that needs the user's tools. The worker may check every file of a
/// workspace and has 30 s, and the tools have 35 s.
pub(super) const WORKER_TIMEOUT: Duration = Duration::from_secs(40);

/// Returns true if the request changes permissions.
pub(super) fn is_change(params: &SandboxParams) -> bool {
    matches!(params.action.as_deref(), Some("set" | "allow" | "revoke"))
}

/// Sends a request about the selected session. A change and a request to the worker create the session of a directory, so
/// that its policy is in force, and a workspace is audited, before anything runs.
pub(super) async fn ask<M: Method + From<SandboxParams>>(
    choice: Wanted,
    missing: Missing,
    params: SandboxParams,
    limit: Duration,
    output: CliOutput,
) -> anyhow::Result<M::Reply> {
    let daemon = start_and_connect(output).await?;
    let found = choice.one(&daemon.client, missing).await?;

    if is_change(&params) {
        session_ref::tell(&found, output);
    }

    let params = SandboxParams { session_id: Some(found.session_id.0), ..params };
    Ok(daemon.client.call_within(M::from(params), limit).await?)
}
