//! Results of a check of `doctor`: ok, a warning or a failure. Made by `doctor.rs` and the other files with its checks.

use quackd_protocol::client::{Check, CheckStatus};

pub(super) fn ok(name: &str, message: String) -> Check {
    Check { name: name.to_owned(), status: CheckStatus::Ok, message, hint: None }
}

pub(super) fn warn(name: &str, message: String, hint: impl Into<String>) -> Check {
    Check { name: name.to_owned(), status: CheckStatus::Warn, message, hint: Some(hint.into()) }
}

pub(super) fn fail(name: &str, message: String, hint: impl Into<String>) -> Check {
    Check { name: name.to_owned(), status: CheckStatus::Fail, message, hint: Some(hint.into()) }
}
