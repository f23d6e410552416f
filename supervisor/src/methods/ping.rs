//! `ping`: identifies this daemon.

use super::{Caller, NoParams};
use crate::errors::MethodError;
use quackd_protocol::VERSION;
use quackd_protocol::client::{CLIENT_PROTOCOL, PingData};

/// Build profile of this executable.
const BUILD: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

pub(super) async fn ping(_: NoParams, caller: &Caller) -> Result<PingData, MethodError> {
    let services = &caller.services;
    Ok(PingData {
        version: VERSION.to_owned(),
        uptime: u64::try_from(services.daemon.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        clients: services.sessions.metrics.clients.get(),
        pid: std::process::id(),
        started_at: services.daemon.started_at.clone(),
        protocol: CLIENT_PROTOCOL,
        build: format!("{BUILD} {}-{}", std::env::consts::ARCH, std::env::consts::OS),
    })
}
