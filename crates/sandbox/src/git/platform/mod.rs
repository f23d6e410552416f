//! Opening of files under a directory on this system. Called by `openat`, which has the meaning of each function.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "macos.rs")]
mod system;

pub(super) use system::*;
