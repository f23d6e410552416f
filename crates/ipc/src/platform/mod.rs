//! Differences between Linux and macOS in this crate: flags of sockets and messages, and questions about a socket.
//! Both files have the same names.
//!
//! Linux sets close-on-exec and non-blocking when it makes a descriptor. macOS sets them with a second call, so a program
//! that another thread starts between the two calls inherits the descriptor.

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "macos.rs")]
mod system;

pub(crate) use system::*;
