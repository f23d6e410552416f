//! Integration with the user's service manager: systemd or launchd.
//!
//! The command line uses the first part, the supervisor the second:
//! - [`Service`] describes the service. [`systemd`] and [`launchd`] generate the manager's files, [`place`]
//!   returns their paths, and [`mod@file`] writes them.
//! - [`Notifier`] sends the daemon's state to the manager, and [`watchdog_interval`] returns the required
//!   interval. [`activated_blocking`] takes over the manager's socket. [`exit`] defines the exit codes.
//!
//! This crate starts no programs and makes no decisions for the daemon.

mod activation;
pub mod commands;
mod description;
pub mod exit;
pub mod file;
pub mod launchd;
mod notify;
pub mod place;
mod platform;
pub mod systemd;

pub use activation::{ActivationError, SOCKET_NAME, activated_blocking};
pub use description::{DescriptionError, Manager, Service, complaint_about};
pub use notify::{Notifier, watchdog_interval};

/// Looks up an environment variable.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<std::ffi::OsString>;
