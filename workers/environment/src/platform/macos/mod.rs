//! The names of [`super`] for macOS.

mod keychain;

pub(crate) use keychain::KEYCHAIN;

use std::process::ExitCode;

/// Runs no role: the login shell is not confined.
#[must_use]
pub fn run_role(_verb: &str) -> Option<ExitCode> {
    None
}

/// The keychains whose programs can be tested here.
#[cfg(test)]
pub(crate) const KEYCHAINS: &[crate::keychain_program::KeychainProgram] = &[KEYCHAIN];
