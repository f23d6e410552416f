//! The lines of the wire around the parameters and the data: request, reply and event.

use super::error_code::ErrorCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Version of the additive part of this wire, reported by `ping`.
pub const CLIENT_PROTOCOL: u32 = 1;

/// A request as our client writes it.
#[derive(Debug, Serialize)]
pub struct Request<'a, P> {
    /// Echoed in the reply.
    pub id: &'a str,
    /// Method name.
    pub method: &'a str,
    /// Parameters of that method.
    pub params: P,
}

/// A reply as the supervisor writes it.
#[derive(Debug, Serialize)]
pub struct Reply<'a, D> {
    /// The request's id; absent if the request had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a Value>,
    /// Whether the request succeeded. A request whose tool fails still succeeds.
    pub ok: bool,
    /// Error text of a failed request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a str>,
    /// The method's result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<D>,
    /// Cause of a failed request. The last key, because upstream has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
}

/// A line from the supervisor as our client reads it: a reply (`ok` is present) or an event.
#[derive(Debug, Deserialize)]
pub struct ServerLine {
    /// The request's id, in a reply.
    #[serde(default)]
    pub id: Option<Value>,
    /// Present in replies only.
    #[serde(default)]
    pub ok: Option<bool>,
    /// Failure text of a reply.
    #[serde(default)]
    pub error: Option<String>,
    /// Cause of the failure.
    #[serde(default)]
    pub code: Option<ErrorCode>,
    /// Name of an event.
    #[serde(default)]
    pub event: Option<String>,
    /// Session of an event.
    #[serde(default, rename = "sessionId")]
    pub session_id: Option<String>,
    /// Number of an event within its session.
    #[serde(default)]
    pub seq: Option<u64>,
    /// Turn of an event.
    #[serde(default)]
    pub turn: Option<u64>,
    /// Result of a reply, payload of an event.
    #[serde(default)]
    pub data: Option<Box<RawValue>>,
}
