//! Differences between Linux and macOS in this crate: the program of the keychain, and the role that confines a login
//! shell. Both directories have the same names.

#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
#[cfg_attr(not(target_os = "linux"), path = "macos/mod.rs")]
mod system;

pub use system::*;
