//! What connections, methods and handles share: immutable facts and the handles of other parts.

use crate::metrics::Metrics;
use crate::spawner::Spawner;
use quackd_home::Home;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{Semaphore, mpsc};

/// One instance per daemon, behind an `Rc` on the actors' thread.
#[derive(Debug)]
pub(crate) struct Services {
    /// Where things live.
    pub(crate) home: Home,
    /// The socket that clients use.
    pub(crate) socket: PathBuf,
    /// The directory in which the daemon was started: `attach` without a path means it.
    pub(crate) started_in: PathBuf,
    /// When the daemon started.
    pub(crate) started: Instant,
    /// The same as wall-clock time, for display.
    pub(crate) started_at: String,
    /// The environment of the commands that tools start.
    pub(crate) tool_env: Vec<(String, String)>,
    /// Counters.
    pub(crate) metrics: Arc<Metrics>,
    /// Places for directory look-ups: one on a dead mount holds its thread for ever.
    pub(crate) lookups: Arc<Semaphore>,
    /// Starts and reaps workers.
    pub(crate) spawner: Spawner,
    /// One message asks the daemon to stop.
    pub(crate) stop: mpsc::Sender<()>,
}

/// Now, as `metadata.json` and replies write it: whole seconds, UTC. For display only.
pub(crate) fn now_text() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
