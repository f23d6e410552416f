//! Waiting for a condition, with a deadline.

use std::time::{Duration, Instant};

/// Timeout for a condition. It is much longer than every promised time, so that a busy machine
/// fails no test, and shorter than `sleep 60`, so that a wait for the wrong thing fails one.
pub const PATIENCE: Duration = Duration::from_secs(45);

/// Time between two checks of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Polls `probe` until it yields a value. Fails the test with `what` after [`PATIENCE`].
#[track_caller]
pub fn wait_for<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    wait_within(PATIENCE, what, probe)
}

/// Like [`wait_for`], for a condition without a value.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Like [`wait_for`], with an explicit deadline, for conditions that take longer.
#[track_caller]
pub fn wait_within<T>(deadline: Duration, what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(start.elapsed() < deadline, "timed out after {deadline:?} waiting for {what}");
        #[expect(clippy::disallowed_methods, reason = "the one poll interval of all tests")]
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Like [`wait_until`], in a runtime with a timer.
pub async fn wait_until_async(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "timed out after {PATIENCE:?} waiting for {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
