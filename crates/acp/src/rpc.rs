//! JSON-RPC 2.0 as lines: the messages of the client, and the sender of answers, notifications and requests to it.

use crate::lock;
use bytes::Bytes;
use quackd_client::ClientError;
use quackd_protocol::client::ErrorCode;
use quackd_protocol::surrogates;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, oneshot};

/// Requests to the client without an answer. Further ones fail.
const MAX_QUESTIONS: usize = 256;

/// An error of a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RpcError {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl RpcError {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The line is not JSON.
    pub(crate) fn parse(message: impl Into<String>) -> Self {
        Self::new(-32700, message)
    }

    /// The request cannot be served in this state.
    pub(crate) fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(-32600, message)
    }

    pub(crate) fn unknown_method(method: &str) -> Self {
        let method: String = method.chars().take(100).collect();
        Self::new(-32601, format!("Method not found: {method}"))
    }

    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(-32602, message)
    }

    /// The daemon or the model failed.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(-32603, message)
    }

    /// The client has cancelled the request.
    pub(crate) fn cancelled() -> Self {
        Self::new(-32800, "Request cancelled")
    }

    pub(crate) fn unknown_session(id: &str) -> Self {
        let id: String = id.chars().take(100).collect();
        Self::new(-32002, format!("Session not found: {id}"))
    }

    /// Adds the daemon's error code.
    #[must_use]
    pub(crate) fn with_code(mut self, code: Option<&str>) -> Self {
        self.data = code.map(|code| json!({ "code": code }));
        self
    }

    fn to_value(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let (Some(error), Some(data)) = (error.as_object_mut(), &self.data) {
            error.insert("data".to_owned(), data.clone());
        }
        error
    }
}

impl From<ClientError> for RpcError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused { text, code: Some(ErrorCode::SessionNotFound) } => {
                Self::new(-32002, text)
            }
            ClientError::Refused { text, code: Some(ErrorCode::NotAWorkspace) } => {
                Self::invalid_params(text)
            }
            ClientError::Refused { text, code } => {
                let code = code.and_then(|code| serde_json::to_value(code).ok());
                Self::internal(text).with_code(code.as_ref().and_then(Value::as_str))
            }
            other => Self::internal(other.to_string()),
        }
    }
}

/// A message of the client.
#[derive(Debug, PartialEq)]
pub(crate) enum Incoming {
    Request { id: Value, method: String, params: Value },
    Notification { method: String, params: Value },
    Response { id: u64, result: Result<Value, RpcError> },
}

/// Parses a line. The error has the id of the answer, null if the line has no valid one.
pub(crate) fn parse_line(line: &[u8]) -> Result<Incoming, (Value, RpcError)> {
    let value: Value = surrogates::parse(line)
        .map_err(|error| (Value::Null, RpcError::parse(format!("not JSON: {error}"))))?;
    let Value::Object(mut message) = value else {
        return Err((Value::Null, RpcError::invalid_request("not a JSON-RPC 2.0 message")));
    };

    let id = message.remove("id");
    let bad = |id: Option<Value>, text: &str| {
        let id = id.filter(|id| id.is_string() || id.is_number()).unwrap_or_default();
        (id, RpcError::invalid_request(text))
    };

    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(bad(id, "not a JSON-RPC 2.0 message"));
    }

    let params = message.remove("params").unwrap_or_default();
    match (message.remove("method"), id) {
        (Some(Value::String(method)), None) => Ok(Incoming::Notification { method, params }),
        (Some(Value::String(method)), Some(id)) if id.is_string() || id.is_number() => {
            Ok(Incoming::Request { id, method, params })
        }
        (Some(_), id) => Err(bad(id, "the id must be a string or a number, the method a string")),
        (None, id) => response(&mut message, id.as_ref().and_then(Value::as_u64))
            .ok_or_else(|| bad(id, "neither a request nor an answer to one")),
    }
}

fn response(message: &mut Map<String, Value>, id: Option<u64>) -> Option<Incoming> {
    let id = id?;
    let result = match (message.remove("result"), message.remove("error")) {
        (Some(result), None) => Ok(result),
        (None, Some(error)) => {
            let text = error.get("message").and_then(Value::as_str).unwrap_or_default();
            Err(RpcError::new(error.get("code").and_then(Value::as_i64).unwrap_or_default(), text))
        }
        _ => return None,
    };
    Some(Incoming::Response { id, result })
}

/// Parses the parameters of a request. Absent ones are an empty object.
pub(crate) fn parse_params<T: DeserializeOwned>(params: Value) -> Result<T, RpcError> {
    let params = if params.is_null() { json!({}) } else { params };
    serde_json::from_value(params).map_err(|error| RpcError::invalid_params(error.to_string()))
}

/// Sends to the client. Waits while the client does not read.
#[derive(Debug)]
pub(crate) struct Peer {
    lines: mpsc::Sender<Bytes>,
    waiting: Arc<Waiting>,
    next_id: AtomicU64,
}

type Waiting = Mutex<HashMap<u64, oneshot::Sender<Result<Value, RpcError>>>>;

impl Peer {
    pub(crate) fn new(lines: mpsc::Sender<Bytes>) -> Self {
        Self { lines, waiting: Arc::default(), next_id: AtomicU64::new(1) }
    }

    /// Sends an answer, whose id the client has chosen.
    pub(crate) async fn answer(&self, id: &Value, result: Result<Value, RpcError>) {
        self.send(&match result {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error.to_value()}),
        })
        .await;
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    /// Sends an update of a session, as a notification.
    pub(crate) async fn update(&self, session: &str, update: Value) {
        self.notify("session/update", json!({"sessionId": session, "update": update})).await;
    }

    /// Sends a request. `None` if too many have no answer.
    pub(crate) async fn request(&self, method: &str, params: Value) -> Option<Pending> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = lock(&self.waiting);
            if MAX_QUESTIONS <= waiting.len() {
                return None;
            }
            waiting.insert(id, answer);
        }

        // Before the request is sent, so that the entry is removed even if this future is dropped.
        let pending = Pending { id, answered, waiting: Arc::clone(&self.waiting) };
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        Some(pending)
    }

    /// Gives the answer to the request that waits for it. Ignores answers to other requests.
    pub(crate) fn deliver(&self, id: u64, result: Result<Value, RpcError>) {
        if let Some(waiting) = lock(&self.waiting).remove(&id) {
            // The request was dropped.
            waiting.send(result).ok();
        }
    }

    async fn send(&self, message: &Value) {
        let Ok(mut line) = serde_json::to_vec(message) else { return };
        line.push(b'\n');
        // Without a reader the server ends.
        self.lines.send(line.into()).await.ok();
    }
}

/// A request to the client without an answer. Dropping it ignores the answer.
#[derive(Debug)]
pub(crate) struct Pending {
    id: u64,
    answered: oneshot::Receiver<Result<Value, RpcError>>,
    waiting: Arc<Waiting>,
}

impl Pending {
    /// Waits for the answer. `None` if the server ends. Cancel-safe.
    pub(crate) async fn answer(&mut self) -> Option<Result<Value, RpcError>> {
        (&mut self.answered).await.ok()
    }

    /// Withdraws the request: the client can close its dialog.
    pub(crate) async fn cancel(self, peer: &Peer) {
        peer.notify("$/cancel_request", json!({"requestId": self.id})).await;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        lock(&self.waiting).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_request_a_notification_an_answer_or_an_error_with_its_id() {
        let parsed = |line: &str| parse_line(line.as_bytes());
        let (method, params) = ("m".to_owned(), json!([1]));
        assert_eq!(
            parsed(r#"{"jsonrpc":"2.0","id":"a","method":"m","params":[1]}"#),
            Ok(Incoming::Request { id: "a".into(), method: method.clone(), params })
        );
        assert_eq!(
            parsed(r#"{"jsonrpc":"2.0","method":"m"}"#),
            Ok(Incoming::Notification { method, params: Value::Null })
        );
        assert_eq!(
            parsed(r#"{"jsonrpc":"2.0","method":"m","params":"half \ud83d"}"#),
            Ok(Incoming::Notification { method: "m".to_owned(), params: json!("half \u{fffd}") })
        );
        assert_eq!(
            parsed(r#"{"jsonrpc":"2.0","id":7,"result":null}"#),
            Ok(Incoming::Response { id: 7, result: Ok(Value::Null) })
        );
        for (line, id, code) in [
            ("hello", Value::Null, -32700),
            (r#"{"jsonrpc":"2.0","id":1"#, Value::Null, -32700),
            ("[]", Value::Null, -32600),
            (r#"{"id":3,"method":"m"}"#, json!(3), -32600),
            (r#"{"jsonrpc":"2.0","id":[],"method":"m"}"#, Value::Null, -32600),
            (r#"{"jsonrpc":"2.0","id":3,"method":5}"#, json!(3), -32600),
            (r#"{"jsonrpc":"2.0","id":3}"#, json!(3), -32600),
            (r#"{"jsonrpc":"2.0","id":-3,"result":1}"#, json!(-3), -32600),
        ] {
            let (of, error) = parsed(line).unwrap_err();
            assert_eq!((of, error.code), (id, code), "{line}");
        }
    }
}
