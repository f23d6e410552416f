//! A runtime for one future.

use tokio::runtime::Builder;

/// Runs a future to its end on this thread, in a separate runtime.
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}
