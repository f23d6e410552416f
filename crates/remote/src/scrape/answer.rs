//! From a request for numbers to its answer.
//!
//! Nobody needs a token, so a page in a browser of this machine must not be able to ask: not from another site,
//! and not by a name of its own that it has pointed at this machine (DNS rebinding). Browsers say where a page
//! comes from, and whom they take us for; programs that collect numbers say nothing of the first and are told the
//! right name of the second.

use super::Scrape;
use crate::advertise::Seen;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::sync::{mpsc, oneshot};

/// The only path that there is.
const PATH: &str = "/metrics";

/// What browsers say of the page that has them ask.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// On every answer: no page is given it, nobody keeps it, and it is never taken for anything but text.
const COMMON: [(HeaderName, &str); 3] = [
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// What all requests share.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) scrapes: mpsc::Sender<Scrape>,
    /// Of the numbers.
    pub(super) content_type: &'static str,
    /// That is listened on.
    pub(super) port: u16,
}

type Reply = Response<Full<Bytes>>;

/// Answers one request. Never fails: what is wrong with it is the answer. A body is not looked at.
pub(super) async fn answer<B>(request: &Request<B>, visit: &Visit) -> Reply {
    if let Err(why) = admit(request, visit.port) {
        return text(StatusCode::FORBIDDEN, why);
    }
    if request.uri().path() != PATH {
        return text(StatusCode::NOT_FOUND, "Not found; the numbers are at /metrics");
    }
    // hyper leaves the body out for who has asked for the head.
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are served");
        refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    let (answer, answered) = oneshot::channel();
    // If the other end is gone the answer is too.
    visit.scrapes.send(Scrape(answer)).await.ok();
    match answered.await {
        Ok(numbers) => reply(StatusCode::OK, visit.content_type, numbers),
        Err(_none) => text(StatusCode::SERVICE_UNAVAILABLE, "There are no numbers now; try again"),
    }
}

/// Why a request is not one of a program of this machine that wants to know.
fn admit<B>(request: &Request<B>, port: u16) -> Result<(), &'static str> {
    let headers = request.headers();
    if request.uri().authority().is_some() {
        return Err("This is no proxy");
    }
    match Seen::read(headers) {
        Ok(Some(seen)) if seen.is_this_machine(port) => {}
        _ => return Err("The Host header must name this machine: localhost, 127.0.0.1 or [::1]"),
    }
    if headers.contains_key(header::ORIGIN) || is_of_a_page(headers) {
        return Err("Pages may not ask");
    }
    Ok(())
}

/// Whether a browser says that a page has it ask. A person who types the address is no page.
fn is_of_a_page(headers: &HeaderMap) -> bool {
    headers.get_all(SEC_FETCH_SITE).iter().any(|site| site != "none" && site != "same-origin")
}

fn text(status: StatusCode, text: &'static str) -> Reply {
    reply(status, "text/plain; charset=utf-8", Bytes::from(format!("{text}\n")))
}

fn reply(status: StatusCode, kind: &'static str, body: Bytes) -> Reply {
    let mut reply = Response::new(Full::new(body));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in COMMON {
        headers.insert(name, HeaderValue::from_static(value));
    }
    reply
}
