//! Differences between Linux and macOS in this crate. Both files have the same names.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "macos.rs")]
mod system;

pub(crate) use system::*;
