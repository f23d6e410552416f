//! Time limit and cancellation of a call, and a bounded wait for blocking work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

/// Extra time for blocking work after the deadline. Work that checks the deadline itself can return its partial
/// result in that time.
const SLACK: Duration = Duration::from_millis(250);

/// The limits of one call.
#[derive(Debug, Clone)]
pub(crate) struct CallLimits {
    /// Time at which the call must end.
    pub(crate) deadline: Instant,
    /// Total time limit, for answer texts.
    pub(crate) limit: Duration,
    /// Token that cancels the call.
    pub(crate) cancel: CancellationToken,
}

/// Reason for abandoning blocking work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    /// The caller canceled.
    Aborted,
    /// The deadline passed.
    TimedOut,
    /// The work ended without a result because of a bug, or because the runtime is shutting down.
    Broken,
}

impl CallLimits {
    pub(crate) fn new(arrived: Instant, limit: Duration, cancel: CancellationToken) -> Self {
        // A limit that overflows the clock becomes one hour, which is longer than any caller waits.
        let deadline = arrived.checked_add(limit);
        let deadline = deadline.unwrap_or_else(|| arrived + Duration::from_secs(3600));
        Self { deadline, limit, cancel }
    }

    /// Returns a check for blocking work to call before an irreversible step. The check returns true if the
    /// work must stop.
    pub(crate) fn give_up(&self, cancel: &CancelOnDrop) -> impl Fn() -> bool + use<> {
        let (is_cancelled, deadline) = (cancel.flag(), self.deadline);
        move || is_cancelled.load(Ordering::Relaxed) || deadline <= Instant::now()
    }

    /// Runs `work` on a blocking thread and waits for it within the limits.
    ///
    /// Work that hangs, for example on a dead network mount, is abandoned. Its thread stays until the kernel
    /// answers, but the caller continues.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StopCause> {
        // The `select!` below starts the work before it polls the token.
        if self.cancel.is_cancelled() {
            return Err(StopCause::Aborted);
        }

        let give_up = tokio::time::Instant::from_std(self.deadline + SLACK);
        tokio::select! {
            // A finished result takes precedence over a cancellation at the same time.
            biased;
            done = spawn_blocking(work) => done.map_err(|_| StopCause::Broken),
            () = self.cancel.cancelled() => Err(StopCause::Aborted),
            () = tokio::time::sleep_until(give_up) => Err(StopCause::TimedOut),
        }
    }
}

/// Sets a flag for blocking work when it is dropped, including when the waiting future is dropped. The work
/// then stops, because its result is no longer needed.
#[derive(Debug, Default)]
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    /// Returns the flag that the work checks.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        // The flag publishes no other data, so no stronger order is needed.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Formats a limit for answer texts: `30s`, `0.5s`. From one second on, it is rounded to 0.1 s, so that the
/// milliseconds spent waiting for the worker do not show.
pub(crate) fn seconds(limit: Duration) -> String {
    let seconds = limit.as_secs_f64();
    if seconds < 1.0 {
        format!("{seconds}s")
    } else {
        format!("{}s", (seconds * 10.0).round() / 10.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(limit: Duration) -> CallLimits {
        CallLimits::new(Instant::now(), limit, CancellationToken::new())
    }

    #[test]
    fn a_limit_is_told_in_true_seconds() {
        let told = [30_000, 29_985, 9_000, 500, 1_300, 996, 600_000]
            .map(|ms| seconds(Duration::from_millis(ms)));
        assert_eq!(told, ["30s", "30s", "9s", "0.5s", "1.3s", "0.996s", "600s"]);
    }

    #[tokio::test]
    async fn work_that_hangs_is_abandoned_after_the_deadline() {
        let (release, hang) = std::sync::mpsc::channel::<()>();
        let hung = bounds(Duration::from_millis(50)).run_blocking(move || hang.recv()).await;
        assert_eq!(hung, Err(StopCause::TimedOut));
        drop(release);
    }

    #[tokio::test]
    async fn work_that_hangs_is_abandoned_at_once_when_cancelled() {
        let (release, hang) = std::sync::mpsc::channel::<()>();
        let bounds = bounds(Duration::from_secs(60));
        let cancel = bounds.cancel.clone();
        let work = move || {
            cancel.cancel();
            hang.recv()
        };
        assert_eq!(bounds.run_blocking(work).await, Err(StopCause::Aborted));
        drop(release);
        assert_eq!(bounds.run_blocking(|| ()).await, Err(StopCause::Aborted));
    }

    #[tokio::test]
    async fn an_endless_limit_is_accepted() {
        assert_eq!(bounds(Duration::MAX).run_blocking(|| 1).await, Ok(1));
    }
}
