//! Life of the daemon process: startup, the tasks that run until shutdown, and shutdown.

mod build;
mod cleanup;
pub(crate) mod daemon;
mod load_state;
mod memory_limit;
mod memory_pressure;
pub(crate) mod shutdown;
mod state_dir_watch;
mod unfinished;
mod watchdog;
