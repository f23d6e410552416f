//! State that the threads of one walk or search share. Used by `walk` and `scan`.

use std::sync::{Condvar, PoisonError};

#[expect(
    clippy::disallowed_types,
    reason = "these threads live within one call; no actor owns this"
)]
type Lock<T> = std::sync::Mutex<T>;

/// Threads of one walk or search; more gain nothing on most disks.
const MAX_THREADS: usize = 8;

/// A value that one thread at a time sees, and for whose changes others can wait.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    state: Lock<T>,
    changed: Condvar,
}

impl<T> Shared<T> {
    pub(crate) fn new(state: T) -> Self {
        Self { state: Lock::new(state), changed: Condvar::new() }
    }

    /// Does something short with the value.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks the value until it gives something, again after each [`Shared::tell`].
    pub(crate) fn wait_for<R>(&self, mut ask: impl FnMut(&mut T) -> Option<R>) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(found) = ask(&mut state) {
                return found;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes all who wait.
    pub(crate) fn tell(&self) {
        self.changed.notify_all();
    }

    pub(crate) fn into_inner(self) -> T {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many threads one walk or search may use.
pub(crate) fn n_threads() -> usize {
    // Asking reads the files of control groups, which takes longer than a small search.
    static N: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *N.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS))
}
