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
use quackd_protocol::limits::METRICS_KEPT_FOR;
use quackd_remote::scrape::{Endpoint, Scrape};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long a text may take; looking at processes has a bound of its own below that.
const TEXT_LIMIT: Duration = Duration::from_secs(5);

/// Opens the endpoint if it is configured. Returns at once.
pub(crate) fn start(services: &Rc<Services>, registry: &Addr<Registry>) {
    // It is empty, or was checked when it was read.
    let Ok(address) = services.daemon.config.metrics.listen.value.parse::<SocketAddr>() else {
        return;
    };
    match Endpoint::open(address, CONTENT_TYPE) {
        Ok((endpoint, scrapes)) => {
            actix::spawn(answer(scrapes, Rc::clone(services), registry.clone()));
            services.metrics_endpoint.opened(address, endpoint);
        }
        Err(error) => {
            tracing::error!(%error, "metrics: cannot start the thread that serves them");
            services.metrics_endpoint.not_started(error.to_string());
        }
    }
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
