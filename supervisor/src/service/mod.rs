//! Life of the daemon process: startup, the tasks that run until shutdown, and shutdown.

mod cleanup;
pub(crate) mod daemon;
mod load_state;
mod memory_limit;
mod memory_pressure;
pub(crate) mod next_daemon;
pub(crate) mod shutdown;
pub(crate) mod start_error;
mod state_dir_watch;
