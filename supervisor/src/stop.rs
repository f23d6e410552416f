//! What asks the daemon to stop: a signal, or `quack.shutdown`. Used by [`crate::daemon`].

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// See the module.
pub(crate) struct StopSignals {
    signals: Vec<Signal>,
    asked: mpsc::Receiver<()>,
}

impl StopSignals {
    pub(crate) fn new(asked: mpsc::Receiver<()>) -> Self {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let signals = kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect();
        Self { signals, asked }
    }

    /// Waits for a signal or for `quack.shutdown`.
    pub(crate) async fn any(&mut self) {
        let Self { signals, asked } = self;
        tokio::select! {
            () = any_of(signals) => {}
            _ = asked.recv() => {}
        }
    }

    /// Waits for a signal: a client cannot cut short what another one waits for.
    pub(crate) async fn signal(&mut self) {
        any_of(&mut self.signals).await;
    }
}

async fn any_of(signals: &mut [Signal]) {
    let signals = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
    futures_util::future::select_all(signals).await;
}
