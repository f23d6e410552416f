//! Differences between Linux and macOS in this crate. Both directories have the same names.

#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
#[cfg_attr(not(target_os = "linux"), path = "macos/mod.rs")]
mod system;

pub(crate) use system::*;

/// Candidates for a file: the first one whose variable is set. A list of names means the first existing file, else the
/// first name.
pub(crate) type Places = &'static [(&'static str, &'static [&'static str])];
