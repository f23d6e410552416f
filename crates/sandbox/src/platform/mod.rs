//! Differences between Linux and macOS in this crate, in all parts but three that select their own: `access`, `audit` and
//! `confine`. Both directories have the same names.

#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
#[cfg_attr(not(target_os = "linux"), path = "macos/mod.rs")]
mod system;

pub(crate) use system::*;
