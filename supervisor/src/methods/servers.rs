//! Listening servers of sessions, with their links. For `quack.ps` and `get_state`.

use super::Caller;
use crate::links::LinkBuilder;
use crate::metrics::listening_ports::listening_ports_blocking;
use crate::metrics::process_usage::is_below_blocking;
use crate::session::services::SessionServices;
use quackd_protocol::SessionId;
use quackd_protocol::client::{ServerInfo, WorkerInfo};
use std::time::{Duration, Instant};

/// Timeout for reading the ports. Without it the reply lacks them, if the blocking pool is exhausted.
const READ_LIMIT: Duration = Duration::from_secs(1);

/// The network namespace of one session's worker.
#[derive(Debug)]
pub(super) struct Namespace {
    /// Process id as the worker reported it, below that of its monitor.
    worker: u32,
    monitor: u32,
    /// Ports of quackd.
    own_ports: Vec<u16>,
}

impl Namespace {
    /// `None` if the session has no worker, or its commands have the network of the machine.
    pub(super) fn of(
        session: &SessionId,
        worker: Option<u32>,
        monitor: Option<u32>,
        sessions: &SessionServices,
    ) -> Option<Self> {
        let own_ports = sessions.pool.networks.get(session)?.own_ports.borrow().clone();
        let (worker, monitor) = (worker?, monitor?);
        (!own_ports.is_empty()).then_some(Self { worker, monitor, own_ports })
    }

    /// Ports on which servers listen. For the blocking pool.
    pub(super) fn ports_blocking(&self) -> Vec<u16> {
        // A worker could report the process of another session.
        if is_below_blocking(self.worker, self.monitor) {
            listening_ports_blocking(self.worker, &self.own_ports)
        } else {
            Vec::new()
        }
    }
}

/// Adds the servers of the sessions in which something runs. Reading the ports of one session takes the kernel some ms, so
/// the last of many sessions may lack them.
pub(super) async fn add_servers(workers: &mut [WorkerInfo], caller: &Caller) {
    let services = &caller.services;
    let namespace = |worker: &WorkerInfo| {
        let is_busy = !worker.jobs.is_empty() || !worker.calls.is_empty();
        let (session, sessions) = (&worker.session_id, &services.sessions);
        is_busy.then(|| Namespace::of(session, worker.pid, worker.monitor_pid, sessions))?
    };
    let namespaces: Vec<Option<Namespace>> = workers.iter().map(namespace).collect();
    if namespaces.iter().all(Option::is_none) {
        return;
    }

    let until = Instant::now() + READ_LIMIT;
    let read = move || {
        let in_time = |_: &&Namespace| Instant::now() < until;
        let ports = namespaces.iter().map(|it| it.as_ref().filter(in_time));
        ports.map(|it| it.map(Namespace::ports_blocking).unwrap_or_default()).collect::<Vec<_>>()
    };
    // Twice the limit: `read` stops by itself between two sessions, and its last one may take long.
    let ports = tokio::time::timeout(2 * READ_LIMIT, actix_rt::task::spawn_blocking(read)).await;
    let ports = ports.ok().and_then(Result::ok).unwrap_or_default();

    let links = services.links.builder(&caller.registry).await;
    for (worker, ports) in workers.iter_mut().zip(ports) {
        worker.servers = infos(&worker.session_id, ports, links.as_ref());
    }
}

/// Returns the servers of one session.
pub(super) async fn servers(session: &SessionId, caller: &Caller) -> Vec<ServerInfo> {
    let sessions = &caller.services.sessions;
    let worker = &sessions.table.snapshot(session).worker;
    let pid = worker.hello.as_ref().map(|hello| hello.pid).filter(|_| !worker.is_far);
    let monitor = worker.process.child.monitor_pid;
    let Some(namespace) = Namespace::of(session, pid, monitor, sessions) else {
        return Vec::new();
    };

    let reading = actix_rt::task::spawn_blocking(move || namespace.ports_blocking());
    let ports = tokio::time::timeout(READ_LIMIT, reading).await;
    let ports = ports.ok().and_then(Result::ok).unwrap_or_default();
    let links = caller.services.links.builder(&caller.registry).await;
    infos(session, ports, links.as_ref())
}

/// Adds the links, if they are open.
fn infos(session: &SessionId, ports: Vec<u16>, links: Option<&LinkBuilder>) -> Vec<ServerInfo> {
    let info = |port| ServerInfo { port, link: links.and_then(|links| links.link(session, port)) };
    ports.into_iter().map(info).collect()
}
