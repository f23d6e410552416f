//! `quack.ps`: the supervision tree as it is now.

use super::Caller;
use crate::errors::MethodError;
use crate::registry::ListWorkers;
use quackd_protocol::VERSION;
use quackd_protocol::client::{PsData, SupervisorInfo};
use std::time::Duration;

/// The pool's threads may all hang; the tree is shown without these figures then.
const USAGE_LIMIT: Duration = Duration::from_secs(1);

pub(super) async fn ps(caller: &Caller) -> Result<PsData, MethodError> {
    let (workers, sessions) = caller.registry.send(ListWorkers).await?;
    let usage = actix_rt::task::spawn_blocking(crate::usage::own_usage_blocking);
    let usage = tokio::time::timeout(USAGE_LIMIT, usage).await;
    let usage = usage.ok().and_then(Result::ok).unwrap_or_default();
    let services = &caller.services;
    let supervisor = SupervisorInfo {
        pid: std::process::id(),
        version: VERSION.to_owned(),
        started_at: services.started_at.clone(),
        uptime: u64::try_from(services.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        socket: services.socket.display().to_string(),
        state_dir: services.home.dir().display().to_string(),
        clients: services.metrics.clients.get(),
        sessions,
        rss_kb: usage.resident_kb,
        open_files: usage.open_files,
        slow_clients: services.metrics.slow_clients.get(),
        strays_killed: services.metrics.strays_killed.get(),
        survivors: services.metrics.survivors.get(),
        spills_deleted: services.metrics.spills_deleted.get(),
    };
    Ok(PsData { supervisor, workers })
}
