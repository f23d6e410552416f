//! `quack.daemon`, `quack.restart`, `quack.shutdown`: describe, restart and stop the daemon.

use super::{Caller, Serve};
use crate::errors::MethodError;
use crate::health::next_daemon;
use crate::registry::in_progress::unfinished;
use crate::services::{Services, StopRequest};
use quackd_protocol::VERSION;
use quackd_protocol::client::{
    DaemonData, DaemonParams, ExecutableInfo, ExecutableState, NoData, RestartData, RestartParams,
    ShutdownParams,
};
use std::time::Duration;

/// Timeout for file system access. The reply then contains everything else.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Timeout for the check of the configuration, which runs another program twice. Clients wait 10 s.
const CONFIG_LIMIT: Duration = Duration::from_secs(8);

impl Serve<DaemonParams> for Caller {
    async fn serve(&self, _: DaemonParams) -> Result<DaemonData, MethodError> {
        let services = &self.services;
        Ok(DaemonData {
            version: VERSION.to_owned(),
            pid: std::process::id(),
            started_at: services.daemon.started_at.clone(),
            managed_by: services.service_manager.name(),
            socket_activated: services.service_manager.is_activated,
            executable: executable(services).await,
            waits_for: unfinished(&services.sessions, &self.registry).await,
            interrupted: services.interrupted.all(),
        })
    }
}

/// Returns the daemon's program, and the state of its file on disk.
pub(super) async fn executable(services: &Services) -> ExecutableInfo {
    let exe = services.executable.clone();
    let path = exe.path_text();
    let checking = actix_rt::task::spawn_blocking(move || exe.check_blocking());
    match tokio::time::timeout(LOOKUP_TIMEOUT, checking).await {
        Ok(Ok(info)) => info,
        _ => ExecutableInfo { path, state: ExecutableState::Unknown },
    }
}

impl Serve<RestartParams> for Caller {
    /// Checks for running work and decides in one step, so that little work can start in between. Such work may finish,
    /// as with every stop.
    async fn serve(&self, params: RestartParams) -> Result<RestartData, MethodError> {
        let RestartParams { force, config_checked } = params;
        // Without a service manager, a remote client could not start the daemon again.
        let managed_by = self.services.service_manager.name();
        if !self.is_local() && managed_by.is_none() {
            return Err(MethodError::LocalRestart);
        }

        // A service manager starts the next daemon with its own environment, not with the client's.
        if config_checked != Some(true) || managed_by.is_some() {
            check_config(&self.services).await?;
        }

        let waits_for = unfinished(&self.services.sessions, &self.registry).await;
        let restarting = force.unwrap_or(false) || waits_for.is_empty();
        if restarting {
            tracing::info!(forced = !waits_for.is_empty(), "restart");
            stop(self, StopRequest::Restart);
        }
        Ok(RestartData { restarting, managed_by, waits_for })
    }
}

/// Returns an error if the next daemon would not start because of its configuration.
async fn check_config(services: &Services) -> Result<(), MethodError> {
    let (home, executable) = (services.daemon.home.clone(), services.executable.clone());
    let checking = actix_rt::task::spawn_blocking(move || {
        next_daemon::check_blocking(&home, &executable).map_err(MethodError::BadConfig)
    });
    match tokio::time::timeout(CONFIG_LIMIT, checking).await {
        Ok(Ok(checked)) => checked,
        Ok(Err(_gone)) => Err(MethodError::ShuttingDown),
        Err(_late) => Err(MethodError::Overloaded),
    }
}

impl Serve<ShutdownParams> for Caller {
    async fn serve(&self, _: ShutdownParams) -> Result<NoData, MethodError> {
        stop(self, StopRequest::Shutdown);
        Ok(NoData)
    }
}

/// Requests that the daemon stops.
fn stop(caller: &Caller, stop: StopRequest) {
    // A full queue means that another client has already requested it.
    caller.services.stop.try_send(stop).ok();
}
