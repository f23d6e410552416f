//! `quack.ps`: the supervision tree as it is now.

use super::Caller;
use crate::errors::MethodError;
use crate::registry::ListWorkers;
use crate::usage::{own_usage_blocking, resident_kb_blocking};
use quackd_protocol::VERSION;
use quackd_protocol::client::{PsData, SupervisorInfo};
use std::collections::HashMap;
use std::time::Duration;

/// The pool's threads may all hang; the tree is shown without these figures then.
const USAGE_LIMIT: Duration = Duration::from_secs(1);

pub(super) async fn ps(caller: &Caller) -> Result<PsData, MethodError> {
    let (mut workers, sessions) = caller.registry.send(ListWorkers).await?;
    for worker in &mut workers {
        worker.pi = caller.services.pis.describe(&worker.session_id);
    }
    let pids: Vec<u32> = workers.iter().filter_map(|worker| worker.pi.as_ref()?.pid).collect();
    let look = move || {
        let pis = pids.into_iter().filter_map(|pid| Some((pid, resident_kb_blocking(pid)?)));
        (own_usage_blocking(), pis.collect::<HashMap<u32, u64>>())
    };
    let usage = actix_rt::task::spawn_blocking(look);
    let usage = tokio::time::timeout(USAGE_LIMIT, usage).await;
    let (usage, resident) = usage.ok().and_then(Result::ok).unwrap_or_default();
    for pi in workers.iter_mut().filter_map(|worker| worker.pi.as_mut()) {
        pi.rss_kb = pi.pid.and_then(|pid| resident.get(&pid).copied());
    }
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
