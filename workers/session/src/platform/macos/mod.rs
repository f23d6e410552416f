//! The names of [`super`] for macOS.

mod confinement;

pub(crate) use confinement::enter;

use std::process::ExitCode;

/// Runs no role: all of them are for the confinement of Linux.
#[must_use]
pub fn run_role(_verb: &str) -> Option<ExitCode> {
    None
}
