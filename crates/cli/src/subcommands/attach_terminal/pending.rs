//! Work of an event loop that runs next to its other events, at most one of a kind.

use std::pin::Pin;

/// Running work, or none.
pub(in crate::subcommands) type Work<'a, T> = Option<Pin<Box<dyn Future<Output = T> + 'a>>>;

/// Waits for the end of the work and removes it. Never completes without work. Cancel-safe.
pub(in crate::subcommands) async fn done<T>(work: &mut Work<'_, T>) -> T {
    let Some(running) = work else { return std::future::pending().await };
    let result = running.await;
    // Removed at once: a future that has ended must not be polled again.
    *work = None;
    result
}
