//! Roles of the executable that only Linux has: none.

use std::process::ExitCode;

/// Runs nothing.
pub(crate) fn run(_verb: &str) -> Option<ExitCode> {
    None
}
