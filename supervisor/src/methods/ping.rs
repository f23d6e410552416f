//! `ping`: identifies this daemon.

use super::{Caller, Serve};
use crate::clock::ms;
use crate::errors::MethodError;
use quackd_protocol::VERSION;
use quackd_protocol::client::{CLIENT_PROTOCOL, PingData, PingParams};
use std::sync::LazyLock;

/// Build profile of this executable, and what it was built for.
static BUILD: LazyLock<String> = LazyLock::new(|| {
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    format!("{profile} {}-{}", std::env::consts::ARCH, std::env::consts::OS)
});

/// Clients ping often, and the standard library asks the system each time.
static PID: LazyLock<u32> = LazyLock::new(std::process::id);

impl Serve<PingParams> for Caller {
    async fn serve(&self, _: PingParams) -> Result<PingData, MethodError> {
        let services = &self.services;
        Ok(PingData {
            version: VERSION.to_owned(),
            uptime: ms(services.daemon.started.elapsed()),
            clients: services.sessions.metrics.clients.get(),
            pid: *PID,
            started_at: services.daemon.started_at.clone(),
            protocol: CLIENT_PROTOCOL,
            build: BUILD.clone(),
        })
    }
}
