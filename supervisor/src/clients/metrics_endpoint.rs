//! The endpoint that a Prometheus asks, as the daemon sees it: opened if `metrics.listen` names an address, and
//! answered here with the text of `quack.metrics`.
//!
//! The port and its connections are [`quackd_remote::scrape`]'s, on a thread of its own. A port that cannot be
//! had is told by `doctor` and in the log, and nothing else. One text is made at a time and given to everybody
//! for a moment, so that asking often costs no more than asking once.

use crate::methods::metrics_text;
use crate::metrics::prometheus_text::CONTENT_TYPE;
use crate::registry::Registry;
use crate::services::Services;
use actix::Addr;
use bytes::Bytes;
use quackd_protocol::client::{Check, CheckStatus};
use quackd_protocol::limits::METRICS_KEPT_FOR;
use quackd_remote::scrape::{Endpoint, Listening, Scrape};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long a text may take; looking at processes has a bound of its own below that.
const TEXT_LIMIT: Duration = Duration::from_secs(5);

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

/// Opens the endpoint if it is configured. Returns at once.
pub(crate) fn start(services: &Rc<Services>, registry: &Addr<Registry>) {
    // It is empty, or was checked when it was read.
    let Ok(address) = services.config.metrics.listen.value.parse::<SocketAddr>() else { return };
    let state = match Endpoint::open(address, CONTENT_TYPE) {
        Ok((endpoint, scrapes)) => {
            actix::spawn(answer(scrapes, Rc::clone(services), registry.clone()));
            State::Open { address, endpoint }
        }
        Err(error) => {
            tracing::error!(%error, "metrics: cannot start the thread that serves them");
            State::NotStarted(error.to_string())
        }
    };
    services.metrics_endpoint.0.replace(state);
}

/// Ends with the endpoint.
async fn answer(
    mut scrapes: mpsc::Receiver<Scrape>,
    services: Rc<Services>,
    registry: Addr<Registry>,
) {
    let mut kept: Option<(Instant, Bytes)> = None;
    while let Some(Scrape(answer)) = scrapes.recv().await {
        // Whoever asked may have waited too long.
        if answer.is_closed() {
            continue;
        }
        if kept.as_ref().is_none_or(|(made, _)| METRICS_KEPT_FOR <= made.elapsed()) {
            let made = timeout(TEXT_LIMIT, metrics_text(&services, &registry)).await;
            kept = made.ok().and_then(Result::ok).map(|text| (Instant::now(), text.into()));
        }
        if let Some((_, text)) = &kept {
            answer.send(text.clone()).ok();
        }
    }
}
