//! Shutdown of the daemon: its triggers, the drain, and the record of interrupted work. Used by
//! [`crate::service::daemon`].

use crate::registry::in_progress::unfinished;
use crate::registry::{Drain, Registry};
use crate::services::{Services, StopRequest};
use actix::Addr;
use quackd_protocol::client::WorkKind;
use quackd_protocol::limits::SHUTDOWN_GRACE;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// Time for replies to calls that a second signal interrupts.
const ABORT_TIMEOUT: Duration = Duration::from_millis(300);

/// Time for the drain beyond the grace period, to stop the remaining workers.
const DRAIN_SLACK: Duration = Duration::from_secs(4);

/// Time before the end of the grace period at which the remaining work is recorded as interrupted.
const RECORD_LEAD_TIME: Duration = Duration::from_millis(50);

/// Timeout for writing the record.
const NOTE_LIMIT: Duration = Duration::from_secs(1);

/// Signals and requests that stop the daemon.
pub(crate) struct StopSources {
    signals: Vec<Signal>,
    requests: mpsc::Receiver<StopRequest>,
}

impl StopSources {
    pub(crate) fn new(requests: mpsc::Receiver<StopRequest>) -> Self {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let signals = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
        Self { signals, requests }
    }

    /// Waits for a signal or for a client's request.
    pub(crate) async fn any(&mut self) -> StopRequest {
        let Self { signals, requests } = self;
        tokio::select! {
            () = any_of(signals) => StopRequest::Shutdown,
            // The services have the sender, so the channel is open.
            stop = requests.recv() => stop.unwrap_or(StopRequest::Shutdown),
        }
    }

    /// Waits for a signal. Requests of clients must not interrupt the work of other clients.
    async fn signal(&mut self) {
        any_of(&mut self.signals).await;
    }
}

async fn any_of(signals: &mut [Signal]) {
    let signals = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
    futures_util::future::select_all(signals).await;
}

/// Refuses new work, lets calls finish within the grace period or until a second signal, stops all workers, and records
/// the interrupted work.
pub(crate) async fn drain(
    stop: StopRequest,
    stop_sources: &mut StopSources,
    services: &Rc<Services>,
    registry: &Addr<Registry>,
) {
    let until = Instant::now() + SHUTDOWN_GRACE;

    // Calls that wait for the user end within the grace period.
    services.sessions.approvals.end_all();

    // The drain does not wait for background jobs, and only briefly for a turn of Pi.
    let mut cut = unfinished(&services.sessions, registry).await;
    cut.retain(|work| work.kind != WorkKind::Call);

    let running_calls = async || {
        let mut calls = unfinished(&services.sessions, registry).await;
        calls.retain(|work| work.kind == WorkKind::Call);
        calls
    };

    let draining = registry.send(Drain { until }).timeout(SHUTDOWN_GRACE + DRAIN_SLACK);
    // Shortly before the end, because calls that finish in time are not interrupted.
    let last_check = async {
        tokio::time::sleep_until((until - RECORD_LEAD_TIME).into()).await;
        running_calls().await
    };

    let mut late = Vec::new();
    tokio::pin!(draining, last_check);
    let mut is_checked = false;
    loop {
        tokio::select! {
            drained = &mut draining => {
                if drained.is_err() {
                    tracing::error!("workers did not exit in time, killed with the daemon");
                }
                break;
            }
            calls = &mut last_check, if !is_checked => {
                late = calls;
                is_checked = true;
            }
            () = stop_sources.signal() => {
                tracing::warn!("second signal, interrupting calls");
                late = running_calls().await;
                // Replaces the end of the grace period by the present.
                let now = Drain { until: Instant::now() };
                // The calls get a reply if this is fast. The shutdown continues in any case.
                registry.send(now).timeout(ABORT_TIMEOUT).await.ok();
                break;
            }
        }
    }

    cut.append(&mut late);
    if !cut.is_empty() {
        tracing::warn!(pieces = cut.len(), by = stop.name(), "work interrupted");
        services.interrupted.note(stop.name(), &cut);
        // The shutdown continues in any case.
        tokio::time::timeout(NOTE_LIMIT, services.interrupted.save()).await.ok();
    }
}
