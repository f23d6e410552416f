//! State of the metrics endpoint, for `doctor` and `quack.tree`. [`crate::clients::metrics_endpoint`] opens it.

use quackd_protocol::client::{Check, CheckStatus};
use quackd_remote::scrape::{Endpoint, Listening};
use std::cell::RefCell;
use std::net::SocketAddr;

/// State of the endpoint. One instance per daemon, on the actors' thread.
#[derive(Debug, Default)]
pub(crate) struct MetricsEndpoint(RefCell<EndpointState>);

#[derive(Debug, Default)]
enum EndpointState {
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

    /// Records that the endpoint's thread runs. `address` is the configured one.
    pub(crate) fn opened(&self, address: SocketAddr, endpoint: Endpoint) {
        self.0.replace(EndpointState::Open { address, endpoint });
    }

    /// Records that the endpoint's thread could not be started.
    pub(crate) fn not_started(&self, why: String) {
        self.0.replace(EndpointState::NotStarted(why));
    }

    /// Closes the port and all connections.
    pub(crate) fn close(&self) {
        self.0.replace(EndpointState::Off);
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
