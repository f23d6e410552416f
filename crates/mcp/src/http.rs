//! The protocol over streamable HTTP, on a loopback address and with a token.
//!
//! hyper reads the requests with limits on size and time, and rmcp serves them. Before that each request needs the
//! token, because every user of the machine can connect, and a page in a browser too: rmcp also checks the headers
//! `Host` and `Origin`.

use crate::batches;
use crate::counted_body::CountedBody;
use crate::http_batches::{Body, HttpBatches, respond};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use quackd_protocol::limits::{
    MAX_LINE_BYTES, MAX_REMOTE_CONNECTIONS_PER_PEER, MAX_REMOTE_HEAD_BYTES, MAX_UNFINISHED_BYTES,
    REMOTE_HEAD_TIMEOUT,
};
use quackd_remote::WriteTimeoutStream;
use quackd_supervision::Budget;
use rmcp::ServerHandler;
use rmcp::model::ProtocolVersion;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use secrecy::{ExposeSecret, SecretString};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Path of the endpoint.
pub const PATH: &str = "/mcp";

/// Sessions of agents of revisions before 2026-07-28. rmcp ends one after 5 minutes without a request.
const MAX_SESSIONS: usize = 64;

/// Header with which an agent of an older revision names its session.
const SESSION: &str = "mcp-session-id";

/// Header with the revision of a request.
const VERSION: &str = "mcp-protocol-version";

/// Origins of pages that may connect, if they know the token: those that this machine serves.
const ORIGINS: [&str; 3] = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];

/// Pause after a failed accept, for example if no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum wait for the slot of a closed connection.
const SLOT_TIMEOUT: Duration = Duration::from_secs(1);

/// The service of all connections.
struct Endpoint<S: ServerHandler> {
    service: StreamableHttpService<S, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    batches: HttpBatches,
    token: SecretString,
    /// Bodies that are not complete.
    unfinished: Arc<Budget<CancellationToken>>,
}

/// Serves agents that know the token until `ended` is cancelled. `handler` makes the handler of one connection.
pub async fn serve<S, F>(
    tcp: TcpListener,
    token: SecretString,
    handler: F,
    ended: CancellationToken,
) where
    S: ServerHandler,
    F: Fn() -> S + Send + Sync + 'static,
{
    let mut config = StreamableHttpServerConfig::default()
        .with_allowed_origins(ORIGINS)
        .enforce_origin_validation();
    config.max_request_body_bytes = MAX_LINE_BYTES;
    config.cancellation_token = ended.child_token();

    let sessions = Arc::new(LocalSessionManager::default());
    let make = move || Ok::<_, io::Error>(handler());
    let service = StreamableHttpService::new(make, Arc::clone(&sessions), config);

    let unfinished = Budget::new(MAX_UNFINISHED_BYTES);
    let batches = HttpBatches::new();
    let endpoint = Arc::new(Endpoint { service, sessions, batches, token, unfinished });

    let slots = Arc::new(Semaphore::new(MAX_REMOTE_CONNECTIONS_PER_PEER));
    let mut strangers = VecDeque::new();
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = tcp.accept() => accepted,
            () = ended.cancelled() => break,
        };
        // Usually the process has too many open files, which may pass.
        let Ok((stream, _peer)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };

        let Some(slot) = slot(&slots, &mut strangers).await else { continue };
        let stranger = Stranger { is_known: CancellationToken::new(), ended: ended.child_token() };
        let (endpoint, this) = (Arc::clone(&endpoint), stranger.clone());
        connections.spawn(async move {
            tokio::select! {
                () = connection(stream, endpoint, this.is_known.clone()) => {}
                () = this.ended.cancelled() => {}
            }
            drop(slot);
            this.ended.cancel();
        });

        strangers.retain(|known| !known.is_known.is_cancelled() && !known.ended.is_cancelled());
        strangers.push_back(stranger);
    }
    connections.close();
    connections.wait().await;
}

/// A connection on which no request had the token yet. Every user of the machine can open some.
#[derive(Debug, Clone)]
struct Stranger {
    /// Cancelled by the first request with the token.
    is_known: CancellationToken,
    /// Ends the connection. Cancelled when it has ended.
    ended: CancellationToken,
}

/// Returns a slot for a connection. If none is free, ends the oldest connection without the token, so that connections
/// without it keep no slot from others. `None` closes the new connection, because an answer would need a slot.
async fn slot(
    slots: &Arc<Semaphore>,
    strangers: &mut VecDeque<Stranger>,
) -> Option<OwnedSemaphorePermit> {
    if let Ok(slot) = Arc::clone(slots).try_acquire_owned() {
        return Some(slot);
    }
    while let Some(oldest) = strangers.pop_front() {
        if oldest.is_known.is_cancelled() || oldest.ended.is_cancelled() {
            continue;
        }

        oldest.ended.cancel();
        // The ended connection returns its slot soon.
        return timeout(SLOT_TIMEOUT, Arc::clone(slots).acquire_owned()).await.ok()?.ok();
    }
    None
}

async fn connection<S: ServerHandler>(
    stream: TcpStream,
    endpoint: Arc<Endpoint<S>>,
    is_known: CancellationToken,
) {
    // Answers are small and must not be delayed. A failure only adds latency.
    stream.set_nodelay(true).ok();
    let service = service_fn(move |request| {
        let (endpoint, is_known) = (Arc::clone(&endpoint), is_known.clone());
        async move { Ok::<_, Infallible>(endpoint.answer(request, &is_known).await) }
    });

    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REMOTE_HEAD_TIMEOUT)
        .max_buf_size(MAX_REMOTE_HEAD_BYTES)
        .serve_connection(TokioIo::new(WriteTimeoutStream::new(stream)), service);
    // An error is one of the peer. It got an answer if that was possible.
    serving.await.ok();
}

impl<S: ServerHandler> Endpoint<S> {
    async fn answer(
        &self,
        request: Request<Incoming>,
        is_known: &CancellationToken,
    ) -> Response<Body> {
        if request.uri().path() != PATH {
            return plain(StatusCode::NOT_FOUND, "the endpoint is /mcp");
        }

        if !self.is_authorized(request.headers()) {
            let text = "this server needs its token: send the header `Authorization: Bearer TOKEN`";
            let mut refusal = plain(StatusCode::UNAUTHORIZED, text);
            refusal.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return refusal;
        }
        // From here on, the connection keeps its slot.
        is_known.cancel();

        let headers = request.headers();
        let version = headers.get(VERSION).map(HeaderValue::as_bytes);
        let has_no_sessions = version == Some(ProtocolVersion::V_2026_07_28.as_str().as_bytes());
        let may_begin =
            request.method() == Method::POST && !headers.contains_key(SESSION) && !has_no_sessions;
        // Each session keeps memory until the agent ends it.
        if may_begin && MAX_SESSIONS <= self.sessions.sessions.read().await.len() {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "too many sessions; end one first");
        }

        let request = request.map(|body| CountedBody::new(body, &self.unfinished));
        match request.method() {
            &Method::POST => self.answer_post(request).await,
            _ => self.service.handle(request).await,
        }
    }

    /// Answers one message or a batch.
    async fn answer_post(&self, request: Request<CountedBody<Incoming>>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = match Limited::new(body, MAX_LINE_BYTES).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return plain(StatusCode::PAYLOAD_TOO_LARGE, "the request is too long");
            }
            Err(error) => {
                let text = format!("cannot read the request: {error}");
                return plain(StatusCode::INTERNAL_SERVER_ERROR, text);
            }
        };

        let session = parts.headers.get(SESSION).and_then(|value| value.to_str().ok());
        let session = session.map(str::to_owned);
        if let Some(batch) = batches::messages(&body) {
            let serve = |message| self.service.handle(message);
            return self.batches.answer(parts, batch, session.as_deref(), serve).await;
        }

        let request = Request::from_parts(parts, Full::new(body.clone()));
        let response = self.service.handle(request).await;

        let begun = response.headers().get(SESSION).and_then(|value| value.to_str().ok());
        if let (None, Some(begun)) = (session, begun) {
            self.batches.began(begun, &body, &self.sessions).await;
        }
        response
    }

    fn is_authorized(&self, headers: &HeaderMap) -> bool {
        let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some((scheme, credentials)) = header.and_then(|header| header.split_once(' ')) else {
            return false;
        };
        let token = self.token.expose_secret().as_bytes();
        scheme.eq_ignore_ascii_case("bearer") && credentials.trim().as_bytes().ct_eq(token).into()
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    respond(status, "text/plain", text)
}
