//! The end of the daemon: what asks for it, what is waited for, and what is cut short. Used by
//! [`crate::service::daemon`].

use crate::registry::in_progress::unfinished;
use crate::registry::{Drain, Registry};
use crate::services::{Services, Stop};
use actix::Addr;
use quackd_protocol::client::WorkKind;
use quackd_protocol::limits::SHUTDOWN_GRACE;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// How long calls that a second signal cuts short have for being answered.
const CUT_SHORT: Duration = Duration::from_millis(300);

/// What the drain may take beyond the grace: ending the workers that are left.
const DRAIN_SLACK: Duration = Duration::from_secs(4);

/// What still runs so shortly before the end of the grace is noted as cut short.
const LAST_LOOK: Duration = Duration::from_millis(50);

/// How long it may take to note it.
const NOTE_LIMIT: Duration = Duration::from_secs(1);

/// What asks the daemon to stop: a signal, or a client.
pub(crate) struct StopSignals {
    signals: Vec<Signal>,
    asked: mpsc::Receiver<Stop>,
}

impl StopSignals {
    pub(crate) fn new(asked: mpsc::Receiver<Stop>) -> Self {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let signals = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
        Self { signals, asked }
    }

    /// Waits for a signal or for a client's word.
    pub(crate) async fn any(&mut self) -> Stop {
        let Self { signals, asked } = self;
        tokio::select! {
            () = any_of(signals) => Stop::Shutdown,
            stop = asked.recv() => stop.unwrap_or(Stop::Shutdown),
        }
    }

    /// Waits for a signal: a client cannot cut short what another one waits for.
    async fn signal(&mut self) {
        any_of(&mut self.signals).await;
    }
}

async fn any_of(signals: &mut [Signal]) {
    let signals = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
    futures_util::future::select_all(signals).await;
}

/// Refuses new work, lets calls finish for the grace or until a second signal, ends all workers, and notes
/// what did not finish.
pub(crate) async fn drain(
    stop: Stop,
    asked: &mut StopSignals,
    services: &Rc<Services>,
    registry: &Addr<Registry>,
) {
    let until = Instant::now() + SHUTDOWN_GRACE;
    // Background jobs are not waited for, and a turn of Pi hardly.
    let mut cut = unfinished(&services.sessions, registry).await;
    cut.retain(|work| work.kind != WorkKind::Call);
    let draining = registry.send(Drain { until }).timeout(SHUTDOWN_GRACE + DRAIN_SLACK);
    let last_look = async {
        tokio::time::sleep_until((until - LAST_LOOK).into()).await;
        let mut late = unfinished(&services.sessions, registry).await;
        late.retain(|work| work.kind == WorkKind::Call);
        late
    };
    let mut late = Vec::new();
    tokio::pin!(draining, last_look);
    let mut has_looked = false;
    loop {
        tokio::select! {
            drained = &mut draining => {
                if drained.is_err() {
                    tracing::error!("workers did not end in time; they end with the daemon");
                }
                break;
            }
            found = &mut last_look, if !has_looked => {
                late = found;
                has_looked = true;
            }
            () = asked.signal() => {
                tracing::warn!("second signal: not waiting for calls");
                late = unfinished(&services.sessions, registry).await;
                late.retain(|work| work.kind == WorkKind::Call);
                let now = Drain { until: Instant::now() };
                // They are told if that is quick; the stop goes on in any case.
                registry.send(now).timeout(CUT_SHORT).await.ok();
                break;
            }
        }
    }
    cut.append(&mut late);
    if !cut.is_empty() {
        tracing::warn!(pieces = cut.len(), by = stop.name(), "work was cut short");
        services.interrupted.note(stop.name(), &cut);
        tokio::time::timeout(NOTE_LIMIT, services.interrupted.save()).await.ok();
    }
}
