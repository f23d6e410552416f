//! State of the metrics endpoint, for `doctor` and `quack.tree`. [`crate::clients::metrics_endpoint`] opens it.

use quackd_protocol::client::{Check, CheckStatus};
use quackd_remote::scrape::{Endpoint, Listening};
use std::cell::RefCell;
use std::net::SocketAddr;

/// One instance per daemon, on the actors' thread.
#[derive(Debug, Default)]
pub(crate) struct MetricsEndpoint(RefCell<State>);

#[derive(Debug, Default)]
enum State {
    /// Nobody has configured it, or the daemon ends.
    #[default]
    Off,
    Open {
        /// As configured.
        address: SocketAddr,
        endpoint: Endpoint,
    },
    /// There was no room for its thread.
    NotStarted(String),
}

impl MetricsEndpoint {
    /// Whether its thread runs.
    pub(crate) fn is_running(&self) -> bool {
        matches!(*self.0.borrow(), State::Open { .. })
    }

    /// The endpoint's thread runs. `address` is the configured one.
    pub(crate) fn opened(&self, address: SocketAddr, endpoint: Endpoint) {
        self.0.replace(State::Open { address, endpoint });
    }

    /// The endpoint's thread could not be started.
    pub(crate) fn not_started(&self, why: String) {
        self.0.replace(State::NotStarted(why));
    }

    /// Closes the port, and whatever is connected.
    pub(crate) fn close(&self) {
        self.0.replace(State::Off);
    }

    /// What `doctor` says of it; nothing if it is off.
    pub(crate) fn check(&self) -> Option<Check> {
        let (status, message, hint) = match &*self.0.borrow() {
            State::Off => return None,
            State::NotStarted(why) => (
                CheckStatus::Warn,
                format!("Configured but not started: {why}"),
                Some("`quack restart` tries again"),
            ),
            State::Open { address, endpoint } => match endpoint.listening() {
                Listening::At(at) => (CheckStatus::Ok, format!("http://{at}/metrics"), None),
                Listening::Begun => (CheckStatus::Ok, format!("{address}, about to listen"), None),
                Listening::Refused(why) => (
                    CheckStatus::Warn,
                    format!("Configured but not listening: {address}: {why}"),
                    Some(
                        "end what has the port, which is tried again every minute; or set another \
                         `metrics.listen`, then `quack restart`",
                    ),
                ),
            },
        };
        let hint = hint.map(str::to_owned);
        Some(Check { name: "metrics".to_owned(), status, message, hint })
    }
}
