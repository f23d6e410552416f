//! `POST /rpc`: one request in the body, one reply.

use crate::reply::{self, HttpReply};
use crate::state::ServerState;
use crate::{Ask, Page, RpcAnswer};
use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{EXPECT, ToStrError};
use hyper::http::request::Parts;
use hyper::{HeaderMap, StatusCode};
use quackd_protocol::limits::{MAX_RPC_BODY_BYTES, REMOTE_BODY_TIMEOUT};
use quackd_supervision::Share;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Limits for reading an unused body. If the connection closed while the client still sends, the client would
/// not see the reply.
const MAX_DISCARDED: usize = 16 * 1024 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// [`REMOTE_BODY_TIMEOUT`], or less in tests.
const BODY_TIMEOUT: Duration =
    if cfg!(test) { Duration::from_millis(700) } else { REMOTE_BODY_TIMEOUT };

/// Header with the client id of a request.
const CLIENT_ID: &str = "x-rubber-duck-client-id";

/// Answers `POST /rpc`. An empty body counts as `{}`.
pub(crate) async fn answer(
    parts: &Parts,
    body: Incoming,
    state: &ServerState,
    page: Option<Page>,
) -> HttpReply {
    let body = match read(parts, body, state, MAX_RPC_BODY_BYTES).await {
        Ok(body) => body,
        Err(refusal) => return *refusal,
    };

    // The body may have taken long.
    if page.as_ref().is_some_and(|page| !state.pages.borrow().has(&page.id)) {
        return reply::error(StatusCode::UNAUTHORIZED, "Unauthorized");
    }

    let text = String::from_utf8_lossy(&body);
    let text = if text.trim().is_empty() { "{}".into() } else { text };
    if let Err(error) = serde_json::from_str::<IgnoredAny>(&text) {
        return reply::error(StatusCode::BAD_REQUEST, &error.to_string());
    }

    let Ok(client) = client_id(&parts.headers) else { return unknown_client() };
    let (answer, answered) = oneshot::channel();
    let body = Bytes::from(text.into_owned());
    // A closed channel means that the daemon is shutting down.
    state.asks.send(Ask::Rpc { body, client, page, answer }).await.ok();

    match answered.await {
        Ok(RpcAnswer::Reply(line)) => {
            let status = if is_ok(&line) { StatusCode::OK } else { StatusCode::BAD_REQUEST };
            let end = line.len() - usize::from(line.ends_with(b"\n"));
            reply::raw_json(status, line.slice(..end))
        }
        Ok(RpcAnswer::UnknownClient) => unknown_client(),
        Err(_gone) => {
            reply::last_error(StatusCode::SERVICE_UNAVAILABLE, "The daemon is shutting down")
        }
    }
}

fn unknown_client() -> HttpReply {
    reply::error(StatusCode::BAD_REQUEST, "Unknown client id")
}

/// Returns the client id; `None` if the header is missing or blank.
fn client_id(headers: &HeaderMap) -> Result<Option<String>, ToStrError> {
    let Some(value) = headers.get(CLIENT_ID) else { return Ok(None) };
    let id = value.to_str()?.trim();
    Ok(Some(id.to_owned()).filter(|id| !id.is_empty()))
}

fn is_ok(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct RpcOutcome {
        ok: bool,
    }
    serde_json::from_slice::<RpcOutcome>(line).is_ok_and(|outcome| outcome.ok)
}

/// Reads a body of at most `max` bytes, or returns the error reply.
pub(crate) async fn read(
    parts: &Parts,
    body: Incoming,
    state: &ServerState,
    max: usize,
) -> Result<Vec<u8>, Box<HttpReply>> {
    let refused = CancellationToken::new();
    // The body counts until it is complete.
    let share = state.unfinished.join(refused.clone());
    tokio::select! {
        read = counted(parts, body, &share, max) => read.map_err(Box::new),
        () = refused.cancelled() => {
            let text = "The unfinished requests of all clients need too much memory";
            Err(Box::new(reply::last_error(StatusCode::SERVICE_UNAVAILABLE, text)))
        }
    }
}

async fn counted(
    parts: &Parts,
    mut body: Incoming,
    share: &Share<CancellationToken>,
    max: usize,
) -> Result<Vec<u8>, HttpReply> {
    let too_large = || {
        let text = format!("The request body is larger than {max} bytes");
        reply::last_error(StatusCode::PAYLOAD_TOO_LARGE, &text)
    };

    let announced = body.size_hint().lower();
    if u64::try_from(max).unwrap_or(u64::MAX) < announced {
        discard(parts, body).await;
        return Err(too_large());
    }

    let reading = async {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else {
                return Err(reply::last_error(StatusCode::BAD_REQUEST, "Malformed request body"));
            };
            let Ok(data) = frame.into_data() else { continue };
            if max < bytes.len() + data.remaining() {
                return Ok(None);
            }
            for refused in share.add(data.remaining(), Instant::now()) {
                refused.cancel();
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Some(bytes))
    };

    match timeout(BODY_TIMEOUT, reading).await {
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => {
            discard(parts, body).await;
            Err(too_large())
        }
        Ok(Err(refusal)) => Err(refusal),
        Err(_elapsed) => {
            Err(reply::last_error(StatusCode::REQUEST_TIMEOUT, "The request body took too long"))
        }
    }
}

/// Reads the rest of an unused body, within limits, so that the client reads the reply.
pub(crate) async fn discard(parts: &Parts, mut body: Incoming) {
    // With `Expect`, the client waits for the reply before it sends the body.
    if body.is_end_stream() || parts.headers.contains_key(EXPECT) {
        return;
    }

    let reading = async {
        let mut n_read = 0;
        while let Some(Ok(frame)) = body.frame().await {
            n_read += frame.data_ref().map_or(0, Bytes::len);
            if MAX_DISCARDED < n_read {
                return;
            }
        }
    };

    // Ignore the rest of a body that takes longer.
    timeout(DISCARD_TIMEOUT, reading).await.ok();
}
