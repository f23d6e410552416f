//! HTTP replies with upstream's headers.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;
use std::time::Duration;

/// Reply of every route.
pub(crate) type HttpReply = Response<Full<Bytes>>;

/// Headers of every reply. Any page may read replies, because useful ones require a token in a header, which
/// browsers never add.
const COMMON: [(HeaderName, &str); 6] = [
    (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    (header::ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Content-Type, X-Rubber-Duck-Client-Id"),
    (header::ACCESS_CONTROL_ALLOW_METHODS, "GET,POST,OPTIONS"),
    (HeaderName::from_static("permissions-policy"), "microphone=(self)"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// Returns a reply with a body of type `kind`.
pub(crate) fn body(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> HttpReply {
    let mut reply = empty(status);
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    *reply.body_mut() = Full::new(body.into());
    reply
}

/// Returns a reply without a body.
pub(crate) fn empty(status: StatusCode) -> HttpReply {
    let mut reply = Response::new(Full::default());
    *reply.status_mut() = status;
    for (name, value) in COMMON {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// Returns a reply with JSON text.
pub(crate) fn raw_json(status: StatusCode, text: impl Into<Bytes>) -> HttpReply {
    let mut reply = body(status, "application/json", text);
    reply.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

/// Returns a reply with a serialized value.
pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> HttpReply {
    match serde_json::to_vec(value) {
        Ok(text) => raw_json(status, text),
        // These types always serialize. If not, send at least an error.
        Err(_) => raw_json(
            StatusCode::INTERNAL_SERVER_ERROR,
            Bytes::from_static(b"{\"error\":\"unprintable\"}"),
        ),
    }
}

/// Returns `{"error":"…"}`, the form of upstream's errors.
pub(crate) fn error(status: StatusCode, text: &str) -> HttpReply {
    json(status, &serde_json::json!({ "error": text }))
}

/// Like [`error`], and closes the connection.
pub(crate) fn last_error(status: StatusCode, text: &str) -> HttpReply {
    let mut reply = error(status, text);
    reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    reply
}

/// Returns the reply for the browser of another site.
pub(crate) fn foreign() -> HttpReply {
    let text = "This request is from another site, or this host name is unknown: use `quack open --public-url`";
    last_error(StatusCode::FORBIDDEN, text)
}

/// Returns the reply during a block.
pub(crate) fn too_many(wait: Duration) -> HttpReply {
    let seconds = wait.as_millis().div_ceil(1000);
    let text = format!("Too many wrong tokens; try again in {seconds} s");
    let mut reply = last_error(StatusCode::TOO_MANY_REQUESTS, &text);
    if let Ok(seconds) = HeaderValue::try_from(seconds.to_string()) {
        reply.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    reply
}
