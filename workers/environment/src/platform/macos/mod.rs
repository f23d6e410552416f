//! The names of [`super`] for macOS.

use std::process::ExitCode;

/// Runs no role: the login shell is not confined.
#[must_use]
pub fn run_role(_verb: &str) -> Option<ExitCode> {
    None
}

/// Program that reads the keychain.
pub(crate) const KEYCHAIN: &str = "security";

/// Arguments that print the key of an account.
pub(crate) fn reading<'a>(service: &'a str, account: &'a str) -> Vec<&'a str> {
    vec!["find-generic-password", "-s", service, "-a", account, "-w"]
}

/// Command line with which a user stores the key of an account.
pub(crate) fn storing(service: &str, account: &str) -> String {
    format!("security add-generic-password -s {service} -a {account} -w")
}
