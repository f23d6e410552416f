//! The monitor: a small process between the supervisor and one worker. It ensures that no process of a worker
//! outlives the worker, and that no worker outlives the supervisor. The worker's stage 0 splits it off.
//!
//! It holds only the control channel (descriptor 0, never read) and stderr, and adopts the worker's orphans. It
//! sleeps until the worker or the supervisor exits, and then exits with the worker's status. So the supervisor, whose
//! direct child it is, sees the true cause.
//!
//! | event | effect |
//! |---|---|
//! | the worker exits | the monitor kills all descendants, and exits with the same code or signal |
//! | the supervisor exits, or closes its end of the channel | the monitor kills the worker at once, even a stopped one; then as above. A patient monitor first waits a bounded time, so that the worker can stop its own processes |
//! | the monitor dies | the kernel kills the worker; the supervisor adopts the remaining processes and sweeps them |
//!
//! Outside Linux there is no monitor: a worker notices the end of the supervisor by its control channel.

#[cfg_attr(target_os = "linux", path = "monitor/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "monitor/macos.rs")]
mod system;

pub use system::*;
