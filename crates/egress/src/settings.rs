//! Settings and failures of web searches.

use crate::Key;
use crate::endpoint::Endpoint;
use quackd_protocol::worker::WebOutcome;
use std::time::Duration;

/// Settings of web searches.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) endpoint: Endpoint,
    pub(crate) key: Key,
    pub(crate) timeout: Duration,
}

/// Creates the outcome of a failed search.
pub(crate) fn failed(reason: impl ToString) -> WebOutcome {
    WebOutcome::Failed { reason: reason.to_string() }
}
