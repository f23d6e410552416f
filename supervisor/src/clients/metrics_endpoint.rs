//! The metrics endpoint for Prometheus. Opened if `metrics.listen` is set. Answers requests with the text of
//! `quack.metrics`.
//!
//! [`quackd_remote::scrape`] owns the port and its connections, on a separate thread. `doctor` and the log report a
//! port that is not available. One text at a time is built, and it is reused for [`METRICS_KEPT_FOR`], so that frequent
//! requests cost little.

use crate::methods::metrics_text;
use crate::metrics::endpoint::EndpointState;
use crate::metrics::prometheus_text::CONTENT_TYPE;
use crate::registry::Registry;
use crate::services::Services;
use actix::Addr;
use bytes::Bytes;
use quackd_protocol::limits::METRICS_KEPT_FOR;
use quackd_remote::scrape::{Endpoint, Scrape};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Timeout for building a text. Reading the processes has a shorter timeout.
const TEXT_LIMIT: Duration = Duration::from_secs(5);

/// Opens the endpoint if it is configured. Returns at once.
pub(crate) fn start(services: &Rc<Services>, registry: &Addr<Registry>) {
    // The value is empty, or was checked when the configuration was read.
    let Ok(address) = services.daemon.config.metrics.listen.value.parse::<SocketAddr>() else {
        return;
    };

    match Endpoint::open(address, CONTENT_TYPE) {
        Ok((endpoint, scrapes)) => {
            actix::spawn(answer(scrapes, Rc::clone(services), registry.clone()));
            services.metrics_endpoint.set(EndpointState::Open { address, endpoint });
        }
        Err(error) => {
            tracing::error!(%error, "metrics: cannot start the thread that serves them");
            services.metrics_endpoint.set(EndpointState::NotStarted(error.to_string()));
        }
    }
}

/// Answers requests until the endpoint is closed.
async fn answer(
    mut scrapes: mpsc::Receiver<Scrape>,
    services: Rc<Services>,
    registry: Addr<Registry>,
) {
    let mut kept: Option<(Instant, Bytes)> = None;
    while let Some(Scrape(answer)) = scrapes.recv().await {
        // The client may have stopped waiting.
        if answer.is_closed() {
            continue;
        }

        if kept.as_ref().is_none_or(|(made, _)| METRICS_KEPT_FOR <= made.elapsed()) {
            let made = timeout(TEXT_LIMIT, metrics_text(&services, &registry)).await;
            // A failed text is not kept, so the next request tries again.
            kept = made.ok().and_then(Result::ok).map(|text| (Instant::now(), text.into()));
        }

        if let Some((_, text)) = &kept {
            // The client may have disconnected.
            answer.send(text.clone()).ok();
        }
    }
}
