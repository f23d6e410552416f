//! The confinement of this system. The parent module has the order of a start.

#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
#[cfg_attr(not(target_os = "linux"), path = "macos.rs")]
mod system;

pub use system::*;
