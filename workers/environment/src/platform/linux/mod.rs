//! The names of [`super`] for Linux.

mod become_shell;
mod keychain;
#[cfg(test)]
#[path = "../macos/keychain.rs"]
mod macos_keychain;

pub(crate) use keychain::KEYCHAIN;

use become_shell::become_shell;
use std::process::ExitCode;

/// Runs the role that a first argument selects. `None` if it selects none. Called before the process does anything else.
#[must_use]
pub fn run_role(verb: &str) -> Option<ExitCode> {
    (verb == "login-shell").then(|| become_shell(std::env::args_os().skip(2)))
}

/// The keychains whose programs can be tested here.
#[cfg(test)]
pub(crate) const KEYCHAINS: &[crate::keychain_program::KeychainProgram] =
    &[KEYCHAIN, macos_keychain::KEYCHAIN];
