//! How long a call may take, and waiting for blocking work no longer than that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

/// How long blocking work may take beyond the deadline, so that work which watches the deadline
/// itself can still hand over what it has.
const SLACK: Duration = Duration::from_millis(250);

/// The limits of one call.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// When the time is over.
    pub(crate) deadline: Instant,
    /// The whole time, as answer texts tell it.
    pub(crate) limit: Duration,
    /// Ends the call when cancelled.
    pub(crate) cancel: CancellationToken,
}

/// Why blocking work was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cutoff {
    /// The caller cancelled.
    Aborted,
    /// The deadline passed.
    TimedOut,
    /// The work ended without a result: a bug, or the runtime is going down.
    Broken,
}

impl Bounds {
    pub(crate) fn new(arrived: Instant, limit: Duration, cancel: CancellationToken) -> Self {
        // A limit that no clock can express is no limit; an hour is longer than any caller waits.
        let deadline = arrived.checked_add(limit);
        let deadline = deadline.unwrap_or_else(|| arrived + Duration::from_secs(3600));
        Self { deadline, limit, cancel }
    }

    /// What blocking work asks before it does something that cannot be taken back.
    pub(crate) fn give_up(&self, cancel: &CancelOnDrop) -> impl Fn() -> bool + use<> {
        let (is_cancelled, deadline) = (cancel.flag(), self.deadline);
        move || is_cancelled.load(Ordering::Relaxed) || deadline <= Instant::now()
    }

    /// Runs `work` on a thread that may block and waits for it within the limits.
    ///
    /// Work that does not end, on a dead network mount for example, is abandoned: its thread stays
    /// until the kernel answers, the caller does not.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Cutoff> {
        if self.cancel.is_cancelled() {
            return Err(Cutoff::Aborted);
        }
        let give_up = tokio::time::Instant::from_std(self.deadline + SLACK);
        tokio::select! {
            biased;
            done = spawn_blocking(work) => done.map_err(|_| Cutoff::Broken),
            () = self.cancel.cancelled() => Err(Cutoff::Aborted),
            () = tokio::time::sleep_until(give_up) => Err(Cutoff::TimedOut),
        }
    }
}

/// Tells blocking work that nobody waits for it any more, when it is dropped: also when the future that
/// waited is.
#[derive(Debug, Default)]
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    /// What the work looks at.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// `30s`, `0.5s`: as answer texts tell a limit. From a second on to the tenth: the milliseconds that a
/// call waited for its worker are not what the reader asks about.
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

    fn bounds(limit: Duration) -> Bounds {
        Bounds::new(Instant::now(), limit, CancellationToken::new())
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
        assert_eq!(hung, Err(Cutoff::TimedOut));
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
        assert_eq!(bounds.run_blocking(work).await, Err(Cutoff::Aborted));
        drop(release);
        assert_eq!(bounds.run_blocking(|| ()).await, Err(Cutoff::Aborted));
    }

    #[tokio::test]
    async fn an_endless_limit_is_accepted() {
        assert_eq!(bounds(Duration::MAX).run_blocking(|| 1).await, Ok(1));
    }
}
