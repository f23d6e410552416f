//! A value with a mutex and a condition variable, shared by the threads of one walk or scan.

use std::sync::{Condvar, PoisonError};

#[expect(
    clippy::disallowed_types,
    reason = "these threads live within one call; no actor owns this"
)]
type Lock<T> = std::sync::Mutex<T>;

/// Maximum number of threads in one walk or scan. More threads gain nothing on most disks.
const MAX_THREADS: usize = 8;

/// A value with a mutex and a condition variable.
#[derive(Debug)]
pub(crate) struct Monitored<T> {
    state: Lock<T>,
    changed: Condvar,
}

impl<T> Monitored<T> {
    pub(crate) fn new(state: T) -> Self {
        Self { state: Lock::new(state), changed: Condvar::new() }
    }

    /// Runs `act` with the value locked. Keep it short.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Blocks until `ask` returns a value. Calls `ask` again after each [`Monitored::tell`].
    pub(crate) fn wait_for<R>(&self, mut ask: impl FnMut(&mut T) -> Option<R>) -> R {
        // A panic aborts the process (docs/adr/0003), so only tests can poison the lock.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(value) = ask(&mut state) {
                return value;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes all waiting threads.
    pub(crate) fn tell(&self) {
        self.changed.notify_all();
    }

    pub(crate) fn into_inner(self) -> T {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number of threads that one walk or scan may use.
pub(crate) fn n_threads() -> usize {
    // The query reads the files of control groups, which takes longer than a small search.
    static N: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *N.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS))
}
