//! The daemon as a service of the user's service manager: systemd or launchd.
//!
//! Two halves that share one description. The command line uses the first, the supervisor the second:
//! - [`Service`] says what the service is. [`systemd`] and [`launchd`] write it down for their manager, and
//!   [`place`] says where. [`mod@file`] puts such a file there, and knows a file of ours from another one's.
//! - [`Notifier`] tells the manager how the daemon is, [`watchdog_interval`] how often it wants to hear that
//!   it is well, [`activated_blocking`] takes the socket that the manager has made, and [`exit`] has the
//!   exit codes that the manager acts on.
//!
//! Nothing here starts a program, and nothing decides what the daemon does.

mod activation;
pub mod commands;
mod description;
pub mod exit;
pub mod file;
pub mod launchd;
mod notify;
pub mod place;
pub mod systemd;

pub use activation::{ActivationError, SOCKET_NAME, activated_blocking};
pub use description::{DescriptionError, Manager, Service};
pub use notify::{Notifier, watchdog_interval};

/// Gives the value of an environment variable.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<std::ffi::OsString>;
