//! `quack.ps`: the current processes and sessions.

use super::servers::add_servers;
use super::{Caller, Serve};
use crate::clock::ms;
use crate::errors::MethodError;
use crate::events::client_registry::Client;
use crate::metrics::process_usage::{ProcessTable, own_usage_blocking, resident_kb_blocking};
use crate::registry::{Registry, RegistrySnapshot, TakeSnapshot};
use crate::services::Services;
use actix::Addr;
use quackd_protocol::VERSION;
use quackd_protocol::client::{
    ClientInfo, DeathInfo, HelloParams, PsData, PsParams, SupervisorInfo, WorkerInfo,
};
use quackd_protocol::limits::MAX_SHOWN_CLIENTS;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Timeout for the processes' memory and processor time. Without it the reply lacks these values, if the blocking pool
/// is exhausted.
const USAGE_LIMIT: Duration = Duration::from_secs(1);

impl Serve<PsParams> for Caller {
    async fn serve(&self, _: PsParams) -> Result<PsData, MethodError> {
        let mut data = processes(&self.services, &self.registry).await?;
        add_servers(&mut data.workers, self).await;
        Ok(data)
    }
}

/// Returns the processes and their memory.
pub(super) async fn processes(
    services: &Services,
    registry: &Addr<Registry>,
) -> Result<PsData, MethodError> {
    let snapshot = registry.send(TakeSnapshot).await?;
    let mut workers = snapshot.workers(&services.sessions);
    let pids: Vec<u32> = workers
        .iter()
        .flat_map(|worker| [worker.pid, worker.pi.as_ref().and_then(|pi| pi.pid)])
        .flatten()
        .collect();
    let read = move || {
        let resident = pids.into_iter().filter_map(|pid| Some((pid, resident_kb_blocking(pid)?)));
        let resident = resident.collect::<HashMap<u32, u64>>();
        (own_usage_blocking(), resident, ProcessTable::read_blocking())
    };
    let usage = actix_rt::task::spawn_blocking(read);
    let usage = tokio::time::timeout(USAGE_LIMIT, usage).await;
    let (usage, resident, all) = usage.ok().and_then(Result::ok).unwrap_or_default();

    let of = |pid: Option<u32>| pid.and_then(|pid| resident.get(&pid).copied());
    for worker in &mut workers {
        worker.rss_kb = of(worker.pid);
        let pi = worker.pi.as_ref().and_then(|pi| pi.monitor_pid);
        worker.usage = all.usage_of_trees([worker.monitor_pid, pi].into_iter().flatten());
        if let Some(pi) = &mut worker.pi {
            pi.rss_kb = of(pi.pid);
        }
    }

    let (metrics, pool) = (&services.sessions.metrics, &services.sessions.pool);
    let supervisor = SupervisorInfo {
        pid: std::process::id(),
        version: VERSION.to_owned(),
        started_at: services.daemon.started_at.clone(),
        uptime: ms(services.daemon.started.elapsed()),
        socket: services.daemon.socket.display().to_string(),
        state_dir: services.daemon.home.dir().display().to_string(),
        clients: metrics.clients.get(),
        sessions: snapshot.session_count(),
        rss_kb: usage.resident_kb,
        open_files: usage.open_files,
        slow_clients: metrics.slow_clients.get(),
        strays_killed: metrics.strays_killed.get(),
        survivors: metrics.survivors.get(),
        spills_deleted: metrics.spills_deleted.get(),
        disk: pool.disk.describe(),
        log_lines_dropped: pool.disk.log_lines_dropped(),
        loop_lag: services.loop_monitor.lag(),
        deaths_total: services.sessions.children.deaths.total(),
        evictions: metrics.evictions.get(),
        memory_pressure: services.health.memory_pressure.borrow().clone(),
        cpu_ms: usage.cpu_ms,
        events: services.sessions.events.published(),
        places: pool.slots.describe(),
        last_pause: services.loop_monitor.pauses().pop(),
    };

    let (deaths, interrupted) = (deaths(services, &workers), services.interrupted.all());
    let (clients, named_clients) = clients(services, &snapshot);
    Ok(PsData { supervisor, workers, deaths, interrupted, clients, named_clients })
}

/// Returns the last deaths, with the present labels of their sessions.
fn deaths(services: &Services, workers: &[WorkerInfo]) -> Vec<DeathInfo> {
    let mut deaths = services.sessions.children.deaths.list();
    for death in &mut deaths {
        let mut workers = workers.iter();
        let worker = workers.find(|worker| Some(&worker.session_id) == death.session_id.as_ref());
        // The session may have been deleted.
        if let Some(worker) = worker {
            death.label.clone_from(&worker.label);
        }
    }
    deaths
}

/// Returns the first clients that named themselves, and the number of all.
fn clients(services: &Services, snapshot: &RegistrySnapshot) -> (Vec<ClientInfo>, usize) {
    let named = services.clients.named();
    let claimed = services.clients.claimed();
    // A label takes time in proportion to all sessions, and most daemons have no claims.
    let labels = if claimed.is_empty() { HashMap::new() } else { snapshot.labels(&claimed) };

    let info = |(hello, client): &(Arc<HelloParams>, Rc<Client>)| {
        let sessions = client.claims.all().into_iter().filter_map(|id| labels.get(&id).cloned());
        let mut sessions: Vec<String> = sessions.collect();
        sessions.sort_unstable();
        ClientInfo {
            client: hello.client.clone(),
            door: hello.door.clone(),
            connected_at: client.connected_at.clone(),
            sessions,
            calls_running: client.calls_running.get(),
            calls: client.calls.get(),
        }
    };

    (named.iter().take(MAX_SHOWN_CLIENTS).map(info).collect(), named.len())
}
