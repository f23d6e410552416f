//! Requests of `quack sandbox` about the selected session, and the rules in them. Called by the subcommand, by `network`
//! and by `quack run`.

use crate::args::SessionArgs;
use crate::connect::start_and_connect;
use crate::exit::CliError;
use crate::output::CliOutput;
use crate::session_ref::{Missing, Wanted};
use quackd_policy::hosts::Rule;
use quackd_protocol::client::{Method, SandboxSession};
use quackd_protocol::policy::{NetworkMode, PolicyPatch};
use std::time::Duration;

/// Timeout for a worker's reply, and for a reply that needs the user's tools. The worker may check every file of a
/// workspace and has 30 s, and the tools have 35 s.
pub(crate) const WORKER_TIMEOUT: Duration = Duration::from_secs(40);

/// Sends a request about the selected session. A request to the worker creates the session of a
/// directory, so that a workspace is audited before anything runs.
pub(super) async fn ask<M: Method>(
    choice: &SessionArgs,
    missing: Missing,
    params: impl FnOnce(SandboxSession) -> M,
    limit: Duration,
    output: CliOutput,
) -> anyhow::Result<M::Reply> {
    ask_about(choice, missing, |session, _workspace| params(session), limit, output).await
}

/// Like [`ask`], for a request that depends on the workspace of the session.
pub(super) async fn ask_about<M: Method>(
    choice: &SessionArgs,
    missing: Missing,
    params: impl FnOnce(SandboxSession, &str) -> M,
    limit: Duration,
    output: CliOutput,
) -> anyhow::Result<M::Reply> {
    // Before the connection, so that wrong arguments start no daemon.
    let choice = Wanted::of(choice)?;
    let daemon = start_and_connect(output).await?;
    let session = choice.one(&daemon.client, missing).await?;
    let params = params(SandboxSession::of(session.session_id.0), &session.workspace_path);
    Ok(daemon.client.call_within(params, limit).await?)
}

/// Refuses rules that cannot be read. The daemon checks whether it has a preset, since another version may have others.
///
/// # Errors
/// A usage error for the first such rule.
pub(super) fn check_rules(rules: &[String]) -> Result<(), CliError> {
    let unreadable = rules.iter().find_map(|rule| rule.parse::<Rule>().err());
    unreadable.map_or(Ok(()), |error| Err(CliError::usage(error.to_string())))
}

/// Returns the change of a policy for `--network` and `--allow`.
///
/// # Errors
/// A usage error for a rule that cannot be read, and for rules of another network than `hosts`.
pub(crate) fn network_patch(
    network: Option<NetworkMode>,
    hosts: Vec<String>,
) -> Result<PolicyPatch, CliError> {
    check_rules(&hosts)?;
    if !hosts.is_empty() && network.is_some_and(|mode| mode != NetworkMode::Hosts) {
        return Err(CliError::usage("--allow is for --network hosts"));
    }

    Ok(PolicyPatch {
        network: network.or_else(|| (!hosts.is_empty()).then_some(NetworkMode::Hosts)),
        hosts: (!hosts.is_empty()).then_some(hosts),
        ..PolicyPatch::default()
    })
}
