//! Work and times of an event loop: work runs next to the other events, at most one of a kind.

use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// Longest wait for a write to the terminal before it is restored.
const SETTLE_WAIT: Duration = Duration::from_secs(1);

/// Running work, or none.
pub(crate) type Work<'a, T> = Option<Pin<Box<dyn Future<Output = T> + 'a>>>;

/// Waits for the end of the work and removes it. Never completes without work. Cancel-safe.
pub(crate) async fn done<T>(work: &mut Work<'_, T>) -> T {
    let Some(running) = work else { return std::future::pending().await };
    let result = running.await;
    // Removed at once: a future that has ended must not be polled again.
    *work = None;
    result
}

/// Waits for a running write to the terminal, so that it does not write to a restored one. A terminal that takes no more
/// bytes is awaited for one second.
pub(crate) async fn settle<T>(work: &mut Work<'_, T>) {
    if work.is_some() {
        timeout(SETTLE_WAIT, done(work)).await.ok();
    }
}

/// Waits until a time. Never completes without one. Cancel-safe.
pub(crate) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
