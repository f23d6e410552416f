//! Differences between Linux and macOS in this crate: which tier of confinement, and entering it; and the roles of
//! processes other than the worker. Both directories have the same names.

#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
#[cfg_attr(not(target_os = "linux"), path = "macos/mod.rs")]
mod system;

pub use system::*;
