//! The user's Pi.
//!
//! - [`launch`] prepares the start. [`locate`] finds the program and builds its arguments;
//!   [`crate::children::pi_env`] builds its environment: only there do keys leave the daemon.
//! - [`outside`] protects both from commands, and [`old_pi`] an old Pi.
//! - [`health`] has the checks for `doctor`.

mod health;
pub(super) mod launch;
mod locate;
mod old_pi;
pub(crate) mod outside;

pub(crate) use health::checks;
