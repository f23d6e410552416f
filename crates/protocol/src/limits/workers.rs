//! Limits of workers, and of the end of the daemon.

use std::time::Duration;

/// Frames waiting to be written to one worker.
pub const WORKER_OUTBOX_FRAMES: usize = 64;

/// Longest wait of a call for a worker that starts or backs off, within the call's deadline.
pub const WORKER_READY_WAIT: Duration = Duration::from_secs(2);

/// Available memory in MiB below which idle workers are evicted. Swapping slows the whole machine, and a worker starts
/// again within milliseconds.
pub const EVICT_BELOW_MB: usize = 256;

/// An idle worker is evicted after this long without a call. The next call starts a new one.
pub const WORKER_IDLE_TTL: Duration = Duration::from_secs(30 * 60);

/// Live workers at the same time.
pub const MAX_WORKERS: usize = 1200;

/// Last bytes of a worker's stderr that are kept for its death report.
pub const WORKER_STDERR_BYTES: usize = 8 * 1024;

/// Time that running calls get when the daemon stops.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
