//! Opens names under a handle in one call, if this system can. The parent module has both ways.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "macos.rs")]
mod system;

pub(crate) use system::*;
