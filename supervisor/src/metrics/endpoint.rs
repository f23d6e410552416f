//! State of the metrics endpoint, for `doctor` and `quack.tree`. [`crate::clients::metrics_endpoint`] opens it.

use quackd_protocol::client::{Check, CheckStatus};
use quackd_remote::scrape::{Endpoint, Listening};
use std::cell::RefCell;
use std::net::SocketAddr;

/// State of the endpoint. One instance per daemon, on the actors' thread.
#[derive(Debug, Default)]
pub(crate) struct MetricsEndpoint(RefCell<EndpointState>);

/// State of the listener.
#[derive(Debug, Default)]
pub(crate) enum EndpointState {
    /// Not configured, or the daemon is shutting down.
    #[default]
    Off,
    Open {
        /// As configured.
        address: SocketAddr,
        endpoint: Endpoint,
    },
    /// The thread could not be started.
    NotStarted(String),
}

impl MetricsEndpoint {
    pub(crate) fn is_running(&self) -> bool {
        matches!(*self.0.borrow(), EndpointState::Open { .. })
    }

    /// Replaces the state. The port and the connections of a dropped endpoint are closed.
    pub(crate) fn set(&self, state: EndpointState) {
        self.0.replace(state);
    }

    /// Returns the check of `doctor`. `None` if the endpoint is off.
    pub(crate) fn check(&self) -> Option<Check> {
        let (status, message, hint) = match &*self.0.borrow() {
            EndpointState::Off => return None,
            EndpointState::NotStarted(why) => (
                CheckStatus::Warn,
                format!("Configured but not started: {why}"),
                Some("`quack restart` tries again"),
            ),
            EndpointState::Open { address, endpoint } => match endpoint.listening() {
                Listening::At(at) => (CheckStatus::Ok, format!("http://{at}/metrics"), None),
                Listening::Begun => (CheckStatus::Ok, format!("{address}, about to listen"), None),
                Listening::Refused(why) => (
                    CheckStatus::Warn,
                    format!("Configured but not listening: {address}: {why}"),
                    Some(
                        "stop the program that uses the port (the daemon tries again every minute), or set another \
                         `metrics.listen`, then `quack restart`",
                    ),
                ),
            },
        };

        let hint = hint.map(str::to_owned);
        Some(Check { name: "metrics".to_owned(), status, message, hint })
    }
}
