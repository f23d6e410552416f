//! Differences between Linux and macOS in this crate: listing a directory, and opening one under another. Both files
//! have the same names.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "macos.rs")]
mod system;

mod stepwise;

pub(crate) use system::*;
