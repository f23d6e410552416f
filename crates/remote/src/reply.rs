//! Answers and their headers: upstream's, on every answer that is ours to make.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

/// What every route gives.
pub(crate) type Reply = Response<Full<Bytes>>;

/// On every answer. Any page may read them: what it needs for an answer that is worth reading is a token
/// in a header, which no page gets from a browser by itself.
const COMMON: [(HeaderName, &str); 6] = [
    (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    (header::ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Content-Type, X-Rubber-Duck-Client-Id"),
    (header::ACCESS_CONTROL_ALLOW_METHODS, "GET,POST,OPTIONS"),
    (HeaderName::from_static("permissions-policy"), "microphone=(self)"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// An answer with a body of some type.
pub(crate) fn body(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = empty(status);
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    *reply.body_mut() = Full::new(body.into());
    reply
}

/// An answer without a body.
pub(crate) fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(Full::default());
    *reply.status_mut() = status;
    for (name, value) in COMMON {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// An answer of JSON that exists already.
pub(crate) fn raw_json(status: StatusCode, text: impl Into<Bytes>) -> Reply {
    let mut reply = body(status, "application/json", text);
    reply.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

/// An answer of JSON.
pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> Reply {
    match serde_json::to_vec(value) {
        Ok(text) => raw_json(status, text),
        // These types always have a JSON form; if one ever has not, the client is told so.
        Err(_) => raw_json(
            StatusCode::INTERNAL_SERVER_ERROR,
            Bytes::from_static(b"{\"error\":\"unprintable\"}"),
        ),
    }
}

/// `{"error":"…"}`.
pub(crate) fn error(status: StatusCode, text: &str) -> Reply {
    #[derive(Serialize)]
    struct Error<'a> {
        error: &'a str,
    }
    json(status, &Error { error: text })
}

/// The same, and the last answer on its connection.
pub(crate) fn last_error(status: StatusCode, text: &str) -> Reply {
    let mut reply = error(status, text);
    reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    reply
}
