//! Answers one metrics request.
//!
//! There is no token, so a web page in a browser of this machine must not read the metrics. The page may be
//! on another site, or use its own host name that resolves to this machine (DNS rebinding). Browsers send the
//! site of the page and the host name in headers. Prometheus sends no site, and a correct host name.

use crate::host_header::DialedHost;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::sync::{mpsc, oneshot};

/// The only valid path.
const PATH: &str = "/metrics";

/// Header of browsers with the site of the requesting page.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Headers of every reply: not readable by pages, not cached, and not sniffed.
const COMMON: [(HeaderName, &str); 3] = [
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// Request for the metrics. Dropping it without a reply returns 503.
#[derive(Debug)]
pub struct Scrape(pub oneshot::Sender<Bytes>);

/// State shared by all requests.
#[derive(Debug)]
pub(super) struct ScrapeContext {
    pub(super) scrapes: mpsc::Sender<Scrape>,
    /// Value of the header `Content-Type` of the metrics.
    pub(super) content_type: &'static str,
    /// The listening port, for the check of the host name.
    pub(super) port: u16,
}

type HttpReply = Response<Full<Bytes>>;

/// Answers one request. An invalid request gets an error reply. Ignores the body.
pub(super) async fn answer<B>(request: &Request<B>, context: &ScrapeContext) -> HttpReply {
    if let Err(problem) = admit(request, context.port) {
        return text(StatusCode::FORBIDDEN, problem);
    }

    if request.uri().path() != PATH {
        return text(StatusCode::NOT_FOUND, "Not found; the numbers are at /metrics");
    }
    // hyper omits the body of the reply to HEAD.
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are served");
        refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }

    let (answer, answered) = oneshot::channel();
    // If the receiver is gone, `answered` fails too.
    context.scrapes.send(Scrape(answer)).await.ok();
    match answered.await {
        Ok(numbers) => reply(StatusCode::OK, context.content_type, numbers),
        Err(_none) => {
            text(StatusCode::SERVICE_UNAVAILABLE, "The metrics are not available now; try again")
        }
    }
}

/// Returns an error for a request that is not from a local program.
fn admit<B>(request: &Request<B>, port: u16) -> Result<(), &'static str> {
    let headers = request.headers();
    if request.uri().authority().is_some() {
        return Err("This server is not a proxy");
    }

    match DialedHost::read(headers) {
        Ok(Some(seen)) if seen.is_this_machine(port) => {}
        _ => return Err("The Host header must name this machine: localhost, 127.0.0.1 or [::1]"),
    }

    if headers.contains_key(header::ORIGIN) || is_of_a_page(headers) {
        return Err("Web pages may not read the metrics");
    }
    Ok(())
}

/// Returns true for a request by a web page. A user who opens the address directly is not a page.
fn is_of_a_page(headers: &HeaderMap) -> bool {
    headers.get_all(SEC_FETCH_SITE).iter().any(|site| site != "none" && site != "same-origin")
}

fn text(status: StatusCode, text: &'static str) -> HttpReply {
    reply(status, "text/plain; charset=utf-8", Bytes::from(format!("{text}\n")))
}

fn reply(status: StatusCode, kind: &'static str, body: Bytes) -> HttpReply {
    let mut reply = Response::new(Full::new(body));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in COMMON {
        headers.insert(name, HeaderValue::from_static(value));
    }
    reply
}
