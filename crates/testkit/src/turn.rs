//! Tests that run one at a time in their process.

use std::sync::OnceLock;
use tokio::sync::{Mutex, MutexGuard};

static TURN: Mutex<()> = Mutex::const_new(());
static PREPARED: OnceLock<()> = OnceLock::new();

/// Locks out the other tests of this process until it is dropped.
#[derive(Debug)]
pub struct Turn {
    _guard: MutexGuard<'static, ()>,
}

impl Turn {
    fn new(guard: MutexGuard<'static, ()>, prepare: impl FnOnce()) -> Self {
        PREPARED.get_or_init(prepare);
        Self { _guard: guard }
    }
}

/// Waits for the turn of a test. The first turn prepares the process for all of them.
pub async fn alone(prepare: impl FnOnce()) -> Turn {
    Turn::new(TURN.lock().await, prepare)
}

/// Like [`alone`], outside of a runtime.
pub fn alone_blocking(prepare: impl FnOnce()) -> Turn {
    Turn::new(TURN.blocking_lock(), prepare)
}
