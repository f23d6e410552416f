//! `quack.daemon`, `quack.restart`, `quack.shutdown`: which program this is, and its end.

use super::{Caller, params};
use crate::errors::MethodError;
use crate::events::client_registry::Transport;
use crate::health::next_daemon;
use crate::registry::in_progress::unfinished;
use crate::services::Services;
use crate::services::Stop;
use crate::wire::Request;
use quackd_protocol::VERSION;
use quackd_protocol::client::{
    DaemonData, ExecutableInfo, ExecutableState, RestartData, RestartParams,
};
use std::time::Duration;

/// A disk that hangs is no reason to say nothing else.
const LOOK_LIMIT: Duration = Duration::from_secs(3);

/// Longest time for the check of the configuration: two runs of another program. Clients wait 10 s.
const CONFIG_LIMIT: Duration = Duration::from_secs(8);

pub(super) async fn daemon(caller: &Caller) -> Result<DaemonData, MethodError> {
    let services = &caller.services;
    Ok(DaemonData {
        version: VERSION.to_owned(),
        pid: std::process::id(),
        started_at: services.daemon.started_at.clone(),
        managed_by: services.managed.name(),
        socket_activated: services.managed.is_activated,
        executable: executable(services).await,
        waits_for: unfinished(&services.sessions, &caller.registry).await,
        interrupted: services.interrupted.all(),
    })
}

/// The daemon's program, and what stands in its place by now.
pub(super) async fn executable(services: &Services) -> ExecutableInfo {
    let exe = services.executable.clone();
    let path = exe.path_text();
    let looked = actix_rt::task::spawn_blocking(move || exe.look_blocking());
    match tokio::time::timeout(LOOK_LIMIT, looked).await {
        Ok(Ok(info)) => info,
        _ => ExecutableInfo { path, state: ExecutableState::Unknown },
    }
}

/// Looks and decides in one go, so that little can begin in between. What does is let finish, like at every
/// stop.
pub(super) async fn restart(
    request: &mut Request,
    caller: &Caller,
) -> Result<RestartData, MethodError> {
    let RestartParams { force, config_checked } = params(request, "quack.restart")?;
    // From afar it would be the end: nobody there can start the next one.
    let is_local = caller.client.transport == Transport::Socket;
    if !is_local && caller.services.managed.name().is_none() {
        return Err(MethodError::LocalRestart);
    }
    // The next daemon of a service manager has the environment of this one, not of the client.
    let is_checked = config_checked.unwrap_or(false) && caller.services.managed.name().is_none();
    if !is_checked {
        check_config(&caller.services).await?;
    }
    let waits_for = unfinished(&caller.services.sessions, &caller.registry).await;
    let restarting = force.unwrap_or(false) || waits_for.is_empty();
    if restarting {
        tracing::info!(forced = !waits_for.is_empty(), "restart");
        stop(caller, Stop::Restart);
    }
    Ok(RestartData { restarting, managed_by: caller.services.managed.name(), waits_for })
}

/// Refuses if the next daemon would not start because of its configuration.
async fn check_config(services: &Services) -> Result<(), MethodError> {
    let (home, executable) = (services.daemon.home.clone(), services.executable.clone());
    let checked = actix_rt::task::spawn_blocking(move || {
        next_daemon::check_blocking(&home, &executable).map_err(MethodError::BadConfig)
    });
    match tokio::time::timeout(CONFIG_LIMIT, checked).await {
        Ok(Ok(checked)) => checked,
        Ok(Err(_gone)) => Err(MethodError::ShuttingDown),
        Err(_late) => Err(MethodError::Overloaded),
    }
}

/// A full queue means that somebody asked already.
pub(super) fn stop(caller: &Caller, stop: Stop) {
    caller.services.stop.try_send(stop).ok();
}
