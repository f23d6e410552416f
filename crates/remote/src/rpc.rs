//! `POST /rpc`: one request in a body, one reply.

use crate::reply::{self, Reply};
use crate::{Ask, RpcAnswer};
use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{EXPECT, ToStrError};
use hyper::http::request::Parts;
use hyper::{HeaderMap, StatusCode};
use quackd_protocol::limits::{MAX_RPC_BODY_BYTES, REMOTE_BODY_TIMEOUT};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// What is read of a body that nobody wants, and for how long: a client that is still sending when the
/// connection is closed would not see the answer.
const MAX_DISCARDED: usize = 16 * 1024 * 1024;
const DISCARD_LIMIT: Duration = Duration::from_secs(2);

/// See [`REMOTE_BODY_TIMEOUT`]; tests wait less.
const BODY_TIMEOUT: Duration =
    if cfg!(test) { Duration::from_millis(700) } else { REMOTE_BODY_TIMEOUT };

/// In whose name a request comes.
const CLIENT_ID: &str = "x-rubber-duck-client-id";

/// Answers `POST /rpc`.
pub(crate) async fn answer(parts: &Parts, body: Incoming, asks: &mpsc::Sender<Ask>) -> Reply {
    let body = match read(parts, body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let text = String::from_utf8_lossy(&body);
    let text = if text.trim().is_empty() { "{}".into() } else { text };
    if let Err(error) = serde_json::from_str::<IgnoredAny>(&text) {
        return reply::error(StatusCode::BAD_REQUEST, &error.to_string());
    }
    let Ok(client) = client_id(&parts.headers) else { return unknown_client() };
    let (answer, answered) = oneshot::channel();
    let body = Bytes::from(text.into_owned());
    // Nobody who asks: the daemon is going down.
    asks.send(Ask::Rpc { body, client, answer }).await.ok();
    match answered.await {
        Ok(RpcAnswer::Reply(line)) => {
            let status = if is_ok(&line) { StatusCode::OK } else { StatusCode::BAD_REQUEST };
            let end = line.len() - usize::from(line.ends_with(b"\n"));
            reply::raw_json(status, line.slice(..end))
        }
        Ok(RpcAnswer::UnknownClient) => unknown_client(),
        Err(_gone) => {
            reply::last_error(StatusCode::SERVICE_UNAVAILABLE, "The daemon is going down")
        }
    }
}

fn unknown_client() -> Reply {
    reply::error(StatusCode::BAD_REQUEST, "Unknown client id")
}

/// `None` for nobody's; an id that is no text is no client's.
fn client_id(headers: &HeaderMap) -> Result<Option<String>, ToStrError> {
    let Some(value) = headers.get(CLIENT_ID) else { return Ok(None) };
    let id = value.to_str()?.trim();
    Ok(Some(id.to_owned()).filter(|id| !id.is_empty()))
}

fn is_ok(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Outcome {
        ok: bool,
    }
    serde_json::from_slice::<Outcome>(line).is_ok_and(|outcome| outcome.ok)
}

async fn read(parts: &Parts, mut body: Incoming) -> Result<Vec<u8>, Reply> {
    let too_large = || {
        let text = format!("The request body is larger than {MAX_RPC_BODY_BYTES} bytes");
        reply::last_error(StatusCode::PAYLOAD_TOO_LARGE, &text)
    };
    let announced = body.size_hint().lower();
    if u64::try_from(MAX_RPC_BODY_BYTES).unwrap_or(u64::MAX) < announced {
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
            if MAX_RPC_BODY_BYTES < bytes.len() + data.remaining() {
                return Ok(None);
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

/// Takes the rest of a body that nobody wants, within bounds, so that the client gets to its answer.
pub(crate) async fn discard(parts: &Parts, mut body: Incoming) {
    // Such a client waits to be told whether it should send the body at all.
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
    // What comes after this time is the client's loss.
    timeout(DISCARD_LIMIT, reading).await.ok();
}
