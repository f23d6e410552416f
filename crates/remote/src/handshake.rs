//! Checks the handshake of a WebSocket (RFC 6455).

use crate::reply::{self, HttpReply};
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode, Version};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// Returns true if the client asks for a WebSocket.
pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    headers
        .get(header::UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Checks the handshake (RFC 6455, 4.2.1). Returns the value for `Sec-WebSocket-Accept`.
pub(crate) fn key(parts: &Parts) -> Result<HeaderValue, Box<HttpReply>> {
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
