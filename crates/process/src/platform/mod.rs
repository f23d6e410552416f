//! Differences between Linux and macOS in this crate. Both directories have the same names, except what only callers
//! for Linux use: the monitor's parts for confinement, and the descriptor of a process handle.

#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
#[cfg_attr(not(target_os = "linux"), path = "macos/mod.rs")]
mod system;

pub use system::*;
