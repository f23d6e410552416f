//! Answers a request, in upstream's order of checks.

use crate::assets;
use crate::bridge::{self, CloseTokens};
use crate::gate::TokenCheck;
use crate::history::{self, Query};
use crate::host_header::DialedHost;
use crate::reply::{self, HttpReply};
use crate::rpc;
use crate::state::{ListenerState, ServerState};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, StatusCode, Version};
use quackd_protocol::client::RemoteStatus;
use serde::Serialize;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_util::sync::CancellationToken;

/// Shared state, peer and lifetime of a connection.
pub(crate) struct RouteContext {
    pub(crate) state: Rc<ServerState>,
    pub(crate) peer: IpAddr,
    /// Cancelled with the listener that accepted this connection.
    pub(crate) epoch: CancellationToken,
}

/// Answers one request. An invalid request gets an error reply.
pub(crate) async fn answer(mut request: Request<Incoming>, context: &RouteContext) -> HttpReply {
    let upgrade = is_websocket(request.headers()).then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();

    let Some(listener) = context.state.listener() else {
        return reply::last_error(StatusCode::SERVICE_UNAVAILABLE, "Remote control was closed");
    };

    let seen = match DialedHost::read(&parts.headers) {
        Ok(None) if parts.version == Version::HTTP_11 => {
            return reply::last_error(StatusCode::BAD_REQUEST, "The Host header is missing");
        }
        Ok(seen) => seen,
        Err(_malformed) => {
            return reply::last_error(StatusCode::BAD_REQUEST, "Malformed Host header");
        }
    };

    if let Some(upgrade) = upgrade {
        return websocket(&parts, upgrade, context, &listener, seen.as_ref()).await;
    }

    let path = parts.uri.path();
    let is_get = parts.method == Method::GET;
    let open = match path {
        _ if parts.method == Method::OPTIONS => Some(reply::empty(StatusCode::NO_CONTENT)),
        "/health" if is_get => {
            let status = context.status(&listener, seen.as_ref());
            Some(reply::json(StatusCode::OK, &Health { ok: true, status }))
        }
        _ if is_get && assets::is_asset(path) => {
            Some(assets::answer(path, &listener.page_urls(seen.as_ref())))
        }
        _ => None,
    };

    let refusal = match open {
        Some(open) => Some(open),
        None => refusal(&parts.headers, context, &listener).await,
    };

    if refusal.is_none() && parts.method == Method::POST && path == "/rpc" {
        let state = &context.state;
        return rpc::answer(&parts, body, &state.asks, &state.unfinished).await;
    }

    // Before every other reply: a client that still sends its body would not see it.
    rpc::discard(&parts, body).await;
    match (refusal, path) {
        (Some(answer), _) => answer,
        (None, "/status") if is_get => {
            reply::json(StatusCode::OK, &context.status(&listener, seen.as_ref()))
        }
        (None, "/history") if is_get => {
            history::answer(&listener.settings.histories, Query::parse(parts.uri.query())).await
        }
        _ => reply::error(StatusCode::NOT_FOUND, "Not found"),
    }
}

#[derive(Serialize)]
struct Health {
    ok: bool,
    status: RemoteStatus,
}

impl RouteContext {
    fn status(&self, listener: &ListenerState, seen: Option<&DialedHost>) -> RemoteStatus {
        listener.settings.status(listener.port, self.state.connected(), seen)
    }
}

/// Returns the error reply, or `None` if the token is correct.
async fn refusal(
    headers: &HeaderMap,
    context: &RouteContext,
    listener: &ListenerState,
) -> Option<HttpReply> {
    let verdict = match bearer(headers) {
        Some(token) => listener.verifier.check(context.peer, token).await,
        // A missing token does not count as an attempt.
        None => TokenCheck::Wrong,
    };

    match verdict {
        TokenCheck::Right => None,
        TokenCheck::Wrong => Some(reply::error(StatusCode::UNAUTHORIZED, "Unauthorized")),
        TokenCheck::TooMany(wait) => {
            let seconds = wait.as_millis().div_ceil(1000);
            let text = format!("Too many wrong tokens; try again in {seconds} s");
            let mut reply = reply::last_error(StatusCode::TOO_MANY_REQUESTS, &text);
            if let Ok(seconds) = HeaderValue::try_from(seconds.to_string()) {
                reply.headers_mut().insert(header::RETRY_AFTER, seconds);
            }
            Some(reply)
        }
    }
}

/// Returns the token of the only `Authorization` header, if its scheme is `Bearer`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    let token = value.strip_prefix("Bearer ")?.trim();
    (values.next().is_none() && !token.is_empty()).then_some(token)
}

fn is_websocket(headers: &HeaderMap) -> bool {
    headers
        .get(header::UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Answers a WebSocket handshake. The bridge starts after the reply is sent.
async fn websocket(
    parts: &Parts,
    upgrade: hyper::upgrade::OnUpgrade,
    context: &RouteContext,
    listener: &Rc<ListenerState>,
    seen: Option<&DialedHost>,
) -> HttpReply {
    if parts.uri.path() != "/ws" {
        return reply::last_error(StatusCode::NOT_FOUND, "Not found");
    }

    if let Some(refusal) = refusal(&parts.headers, context, listener).await {
        return refusal;
    }

    let key = match key(parts) {
        Ok(key) => key,
        Err(refusal) => return *refusal,
    };
    let Ok(slot) = Arc::clone(&context.state.sockets).try_acquire_owned() else {
        return reply::last_error(StatusCode::SERVICE_UNAVAILABLE, "Too many clients");
    };

    let url = listener.page_urls(seen).ws;
    let cancel = CloseTokens {
        revoked: listener.verifier.revoked.clone(),
        epoch: context.epoch.clone(),
        refused: CancellationToken::new(),
    };

    let (asks, connected) = (context.state.asks.clone(), Arc::clone(&context.state.connected));
    let budget = Arc::clone(&context.state.unfinished);
    // Separate task: the connection becomes a WebSocket after this reply is sent.
    context.state.tasks.spawn_local(async move {
        bridge::serve(upgrade, url, asks, connected, &budget, cancel).await;
        drop(slot);
    });

    let mut reply = reply::empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = reply.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, key);
    reply
}

/// Checks the handshake (RFC 6455, 4.2.1). Returns the value for `Sec-WebSocket-Accept`.
fn key(parts: &Parts) -> Result<HeaderValue, Box<HttpReply>> {
    let bad = |text| Box::new(reply::last_error(StatusCode::BAD_REQUEST, text));
    if parts.method != Method::GET || parts.version < Version::HTTP_11 {
        return Err(bad("A WebSocket requires GET and HTTP/1.1"));
    }

    let connection = parts.headers.get_all(header::CONNECTION).iter();
    let is_upgrade = connection
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|word| word.trim().eq_ignore_ascii_case("upgrade"));
    if !is_upgrade {
        return Err(bad("The Connection header must contain Upgrade"));
    }

    let only = |name| {
        let mut values = parts.headers.get_all(name).iter();
        values.next().filter(|_| values.next().is_none())
    };

    if only(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        let mut refusal = reply::last_error(
            StatusCode::UPGRADE_REQUIRED,
            "The only version of WebSockets here is 13",
        );
        let version = HeaderValue::from_static("13");
        refusal.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, version);
        return Err(Box::new(refusal));
    }

    // 16 bytes in base64.
    let is_key = |key: &[u8]| {
        use base64::Engine;
        let decoded = base64::engine::general_purpose::STANDARD.decode(key);
        decoded.is_ok_and(|bytes| bytes.len() == 16)
    };
    let key = only(header::SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).filter(|key| is_key(key));
    let accept = key.and_then(|key| HeaderValue::from_str(&derive_accept_key(key)).ok());
    accept.ok_or_else(|| bad("The Sec-WebSocket-Key header is missing or malformed"))
}
