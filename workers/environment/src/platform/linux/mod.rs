//! The names of [`super`] for Linux.

mod become_shell;

use become_shell::become_shell;
use std::process::ExitCode;

/// Runs the role that a first argument selects. `None` if it selects none. Called before the process does anything else.
#[must_use]
pub fn run_role(verb: &str) -> Option<ExitCode> {
    (verb == "login-shell").then(|| become_shell(std::env::args_os().skip(2)))
}

/// Program that reads the keychain.
pub(crate) const KEYCHAIN: &str = "secret-tool";

/// Arguments that print the key of an account.
pub(crate) fn reading<'a>(service: &'a str, account: &'a str) -> Vec<&'a str> {
    vec!["lookup", "service", service, "account", account]
}

/// Command line with which a user stores the key of an account.
pub(crate) fn storing(service: &str, account: &str) -> String {
    format!("secret-tool store --label=quackd service {service} account {account}")
}
