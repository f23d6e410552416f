//! Answers a request, in upstream's order of checks.

use crate::bridge::{self, Admission, Admitted};
use crate::gate::TokenCheck;
use crate::history::{self, Query};
use crate::host_header::DialedHost;
use crate::pages::TokenHolder;
use crate::reply::{self, HttpReply};
use crate::state::{ListenerState, RouteContext};
use crate::{assets, handshake, rpc, sign_in};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, StatusCode, Version};
use quackd_protocol::client::RemoteStatus;
use serde::Serialize;
use std::rc::Rc;
use std::sync::Arc;

/// Answers one request. An invalid request gets an error reply.
pub(crate) async fn answer(mut request: Request<Incoming>, context: &RouteContext) -> HttpReply {
    let upgrade =
        handshake::is_websocket(request.headers()).then(|| hyper::upgrade::on(&mut request));
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
        _ if is_get && assets::is_asset(path) => Some(assets::answer(path)),
        _ => None,
    };

    let is_post = parts.method == Method::POST;
    if is_post && path == "/token" {
        return sign_in::answer(&parts, body, context, &listener, seen.as_ref()).await;
    }

    let refusal = match open {
        Some(open) => Some(open),
        None => match authorized(&parts.headers, context, &listener, seen.as_ref()).await {
            Ok(holder) if is_post && path == "/rpc" => {
                return rpc::answer(&parts, body, &context.state, holder.page()).await;
            }
            Ok(holder) if parts.method == Method::DELETE && path == "/token" => {
                Some(sign_in::end(holder.page(), context).await)
            }
            Ok(_) => None,
            Err(refusal) => Some(*refusal),
        },
    };

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

/// Returns the holder of the token in the header, or the error reply.
async fn authorized(
    headers: &HeaderMap,
    context: &RouteContext,
    listener: &ListenerState,
    seen: Option<&DialedHost>,
) -> Result<TokenHolder, Box<HttpReply>> {
    let verdict = match bearer(headers) {
        Some(token) => listener.verifier.check(context.peer, token, context.page_of(token)).await,
        // A missing token does not count as an attempt.
        None => TokenCheck::Wrong,
    };

    Err(Box::new(match verdict {
        // A page token is only for the page. Other sites may use the token of remote control, as with upstream.
        TokenCheck::Right(TokenHolder::Page(_)) if context.is_foreign(headers, listener, seen) => {
            reply::foreign()
        }
        TokenCheck::Right(holder) => return Ok(holder),
        TokenCheck::Wrong => reply::error(StatusCode::UNAUTHORIZED, "Unauthorized"),
        TokenCheck::TooMany(wait) => reply::too_many(wait),
    }))
}

/// Returns the token of the only `Authorization` header, if its scheme is `Bearer`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    let token = value.strip_prefix("Bearer ")?.trim();
    (values.next().is_none() && !token.is_empty()).then_some(token)
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

    let holder = match admitted(&parts.headers, context, listener, seen).await {
        Ok(holder) => holder,
        Err(refusal) => return *refusal,
    };
    let key = match handshake::key(parts) {
        Ok(key) => key,
        Err(refusal) => return *refusal,
    };

    let admission = match holder {
        Some(holder) => {
            let Ok(slot) = Arc::clone(&context.state.sockets).try_acquire_owned() else {
                return reply::last_error(StatusCode::SERVICE_UNAVAILABLE, "Too many clients");
            };
            let revoked = listener.verifier.revoked.clone();
            Admission::Header(Admitted { holder, revoked }, slot)
        }
        None => Admission::FirstMessage(context.state.unauthenticated.enter()),
    };

    let (url, context) = (listener.page_urls(seen).ws, context.clone());
    // Separate task: the connection becomes a WebSocket after this reply is sent.
    context.state.tasks.clone().spawn_local(async move {
        bridge::serve(upgrade, url, &context, admission).await;
    });

    let mut reply = reply::empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = reply.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, key);
    reply
}

/// Returns the holder of the token in the header. `None` without a header: the first message has the token.
async fn admitted(
    headers: &HeaderMap,
    context: &RouteContext,
    listener: &ListenerState,
    seen: Option<&DialedHost>,
) -> Result<Option<TokenHolder>, Box<HttpReply>> {
    if headers.contains_key(header::AUTHORIZATION) {
        return authorized(headers, context, listener, seen).await.map(Some);
    }
    if context.is_foreign(headers, listener, seen) {
        return Err(Box::new(reply::foreign()));
    }
    // A block applies to the token of the first message, unless it is that of a page.
    Ok(None)
}
