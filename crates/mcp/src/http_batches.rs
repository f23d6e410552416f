//! JSON-RPC batches over HTTP: each message of a batch is served as one request, and the answers share one stream of
//! events, which the revision allows.
//!
//! Called by [`crate::http`].

use crate::batches::{self, refusal};
use crate::lock;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{iter, select_all};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, ProtocolVersion, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// Requests of batches without an answer, of all agents. Batches beyond are refused.
const MAX_REQUESTS: usize = 256;

/// Maximum size of the text of a refused message that becomes an error, in bytes.
const MAX_REASON_BYTES: usize = 1024;

pub(crate) type Body = BoxBody<Bytes, Infallible>;

/// The sessions whose revision has batches, and the requests of batches.
pub(crate) struct HttpBatches {
    // INVARIANT: at most the sessions of the server, and those that ended since the last one began.
    sessions: Mutex<HashSet<String>>,
    slots: Arc<Semaphore>,
}

/// The messages of a batch that can be served, and the answers to the others.
#[derive(Default)]
struct Messages {
    served: Vec<(Option<RequestId>, Box<RawValue>)>,
    refusals: Vec<ServerJsonRpcMessage>,
    n_requests: u32,
}

impl HttpBatches {
    pub(crate) fn new() -> Self {
        Self { sessions: Mutex::default(), slots: Arc::new(Semaphore::new(MAX_REQUESTS)) }
    }

    /// Remembers a new session if the body that began it names the revision that has batches.
    pub(crate) async fn began(&self, session: &str, body: &[u8], all: &LocalSessionManager) {
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        let revision = request.pointer("/params/protocolVersion").and_then(Value::as_str);
        if revision == Some(ProtocolVersion::V_2025_03_26.as_str()) {
            let running = all.sessions.read().await;
            let mut sessions = lock(&self.sessions);
            sessions.retain(|session| running.contains_key(session.as_str()));
            sessions.insert(session.to_owned());
        }
    }

    fn has_batches(&self, session: Option<&str>) -> bool {
        let sessions = lock(&self.sessions);
        session.is_some_and(|session| sessions.contains(session))
    }

    /// Answers a batch. `serve` serves one message, and returns once the session has it.
    pub(crate) async fn answer<F>(
        &self,
        parts: Parts,
        batch: serde_json::Result<Vec<Box<RawValue>>>,
        session: Option<&str>,
        serve: impl Fn(Request<Full<Bytes>>) -> F,
    ) -> Response<Body>
    where
        F: Future<Output = Response<Body>>,
    {
        let batch = match batches::admit(batch, self.has_batches(session)) {
            Ok(batch) => batch,
            Err(refusal) => return json(StatusCode::BAD_REQUEST, &refusal),
        };

        let Messages { served, mut refusals, n_requests } = Messages::of(batch);
        let Ok(slots) = Arc::clone(&self.slots).try_acquire_many_owned(n_requests) else {
            let refusal = refusal("too many requests are in flight", None);
            return json(StatusCode::SERVICE_UNAVAILABLE, &refusal);
        };

        let mut streams = Vec::new();
        let mut is_begun = false;
        for (id, message) in served {
            let body = Full::new(Bytes::from(String::from(Box::<str>::from(message))));
            let mut request = Request::from_parts(parts.clone(), body);
            // The length is that of the whole batch.
            request.headers_mut().remove(CONTENT_LENGTH);
            let response = serve(request).await;
            match (response.status(), id) {
                (StatusCode::OK, _) => streams.push(BodyStream::new(response.into_body())),
                (status, None) if status.is_success() => {}
                // The headers are wrong, or the session has ended: for all messages alike.
                _ if !is_begun => return response,
                (_, Some(id)) => refusals.push(refused(id, response).await),
                // An error of a notification has no answer.
                (_, None) => {}
            }
            is_begun = true;
        }

        if streams.is_empty() {
            return if refusals.is_empty() {
                empty(StatusCode::ACCEPTED)
            } else {
                json(StatusCode::OK, &refusals)
            };
        }

        let refusals = iter(refusals.into_iter().filter_map(event));
        // The slots are free again when the last answer is sent.
        let answers = select_all(streams).map(move |frame| {
            let _until_the_end = &slots;
            frame
        });
        let events = refusals.map(|event| Ok::<_, Infallible>(Frame::data(event))).chain(answers);

        let mut response = Response::new(BodyExt::boxed(StreamBody::new(events)));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }
}

impl Messages {
    /// Reads the messages of a batch. A message that cannot be served becomes a refusal.
    fn of(batch: Vec<Box<RawValue>>) -> Self {
        let (mut messages, mut ids) = (Self::default(), HashSet::new());
        for message in batch {
            let text = message.get().as_bytes();
            let id = match serde_json::from_slice::<ClientJsonRpcMessage>(text) {
                Err(error) => {
                    messages.refusals.push(*batches::unreadable(text, &error));
                    continue;
                }
                Ok(JsonRpcMessage::Request(request)) => {
                    let problem = match &request.request {
                        ClientRequest::InitializeRequest(_) => {
                            Some("initialize is part of a batch")
                        }
                        _ if !ids.insert(request.id.clone()) => Some("the id is in use"),
                        _ => None,
                    };
                    if let Some(problem) = problem {
                        messages.refusals.push(refusal(problem, Some(request.id)));
                        continue;
                    }
                    messages.n_requests += 1;
                    Some(request.id)
                }
                Ok(_) => None,
            };
            messages.served.push((id, message));
        }
        messages
    }
}

/// Returns the answer to a request that got a refusal of HTTP.
async fn refused(id: RequestId, response: Response<Body>) -> ServerJsonRpcMessage {
    let status = response.status();
    let Ok(body) = response.into_body().collect().await;
    let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    let cut = text.floor_char_boundary(MAX_REASON_BYTES.min(text.len()));
    let reason = format!("{status}: {}", text.get(..cut).unwrap_or_default());
    refusal(reason, Some(id))
}

/// Returns the server-sent event of a message. `None` if it cannot be encoded.
fn event(message: ServerJsonRpcMessage) -> Option<Bytes> {
    let message = serde_json::to_string(&message).ok()?;
    Some(format!("data: {message}\n\n").into())
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::new()).boxed());
    *response.status_mut() = status;
    response
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Response<Body> {
    // Answers always have a JSON form.
    respond(status, "application/json", serde_json::to_vec(value).unwrap_or_default())
}

/// Returns a response with a body of the media type `kind`.
pub(crate) fn respond(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = empty(status);
    *response.body_mut() = Full::new(body.into()).boxed();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
