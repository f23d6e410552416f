//! One model request over HTTP: sends the body, and passes on the answer as fast as its reader takes it.

use super::{Route, failure, head};
use crate::error_text::{is_untrusted, reason};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quackd_protocol::model::{
    MAX_MODEL_ERROR_BYTES, ModelFailure, ModelFailureKind, ModelPart, ModelRequest,
};
use quackd_protocol::output::{MAX_PIECE_BYTES, OutputPiece, OutputStream};
use reqwest::header::CONTENT_ENCODING;
use reqwest::{Client, Response};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

/// Time for the body of an answer with an error status. The text is cut afterwards.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// One model request in flight.
#[derive(Debug)]
pub(crate) struct ModelTask {
    pub(crate) route: Arc<Route>,
    pub(crate) request: ModelRequest,
    /// Maximum time without a byte of the provider.
    pub(crate) idle: Duration,
    /// Closed by the reader when it no longer needs the answer.
    pub(crate) parts: mpsc::Sender<ModelPart>,
    /// Held until all resources of the request are released.
    pub(crate) slot: OwnedSemaphorePermit,
}

/// The reader has dropped its end.
struct Gone;

/// Result of a step: the failure to report, or the reader is gone.
enum Stop {
    Gone,
    Failed(ModelFailure),
}

impl From<Gone> for Stop {
    fn from(Gone: Gone) -> Self {
        Self::Gone
    }
}

impl ModelTask {
    /// Runs the request until the last part, or until the reader is gone.
    pub(crate) async fn run(self, client: Client) {
        let Self { route, request, idle, parts, slot } = self;
        let exchange = exchange(&client, &route, request, idle, &parts);

        let ended = tokio::select! {
            ended = exchange => ended,
            // Dropping the exchange closes its connection.
            () = parts.closed() => Err(Stop::Gone),
        };

        // Release the slot before the last part, because its reader may send another request at once.
        drop(slot);

        let last = match ended {
            Ok(()) => ModelPart::Done {},
            Err(Stop::Failed(failure)) => ModelPart::Failed(failure),
            Err(Stop::Gone) => return,
        };

        // The reader may be gone by now.
        parts.send(last).await.ok();
    }

    /// Reports that there is no client for the request.
    pub(crate) async fn fail(self, text: String) {
        let failure = failure(ModelFailureKind::NotConnected, text);
        // The reader may be gone by now.
        self.parts.send(ModelPart::Failed(failure)).await.ok();
    }
}

async fn exchange(
    client: &Client,
    route: &Route,
    request: ModelRequest,
    idle: Duration,
    parts: &mpsc::Sender<ModelPart>,
) -> Result<(), Stop> {
    let host = route.host();
    let headers = route.headers(request.api, &request.betas);
    let body = String::from(Box::<str>::from(request.body));
    let sending = client.post(route.url(request.api)).headers(headers).body(body).send();

    let response = match timeout(idle, sending).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) if is_untrusted(&error) => {
            return Err(failed(ModelFailureKind::Untrusted, host, &reason(&error)));
        }
        Ok(Err(error)) if error.is_connect() => {
            return Err(failed(ModelFailureKind::NotConnected, host, &reason(&error)));
        }
        Ok(Err(error)) => return Err(failed(ModelFailureKind::Broken, host, &reason(&error))),
        Err(_late) => return Err(silent(host, idle)),
    };

    let status = response.status();
    // Not followed, because the key would be sent along.
    if status.is_redirection() {
        let text = format!(
            "the answer {} redirects to another address, set that one as the base URL",
            status.as_u16()
        );
        return Err(failed(ModelFailureKind::Refused, host, &text));
    }

    let encoding = response.headers().get(CONTENT_ENCODING).map(|value| value.as_bytes());
    // The request offers none, and this client unpacks none.
    if encoding.is_some_and(|encoding| !encoding.eq_ignore_ascii_case(b"identity")) {
        return Err(failed(ModelFailureKind::Broken, host, "the answer is compressed"));
    }

    let head = head::read(status, response.headers(), SystemTime::now());
    send(parts, ModelPart::Head(head)).await?;

    if status.is_success() {
        stream(response, host, idle, parts).await
    } else {
        Ok(pass(parts, &error_body(response, route).await).await?)
    }
}

/// Passes on the body in pieces. Providers send a chunk for each token: while the reader is slow, they become one piece,
/// and beyond its size the provider has to wait.
async fn stream(
    mut response: Response,
    host: &str,
    idle: Duration,
    parts: &mpsc::Sender<ModelPart>,
) -> Result<(), Stop> {
    let mut next = None;
    loop {
        let read = match next.take() {
            Some(read) => read,
            None => timeout(idle, response.chunk()).await.map_err(|_late| silent(host, idle))?,
        };

        let broken = |error| failed(ModelFailureKind::Broken, host, &reason(&error));
        let Some(chunk) = read.map_err(broken)? else { return Ok(()) };

        let mut bytes = Vec::from(chunk);
        loop {
            let has_room = next.is_none() && bytes.len() < MAX_PIECE_BYTES;
            tokio::select! {
                // A reader that waits gets the bytes at once.
                biased;
                // The slot stays free, because nothing else sends.
                slot = parts.reserve() => break drop(slot.map_err(|_closed| Gone)?),
                read = response.chunk(), if has_room => match read {
                    Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                    end => next = Some(end),
                },
            }
        }
        pass(parts, &bytes).await?;
    }
}

/// Reads the beginning of the body of an answer with an error status, without the key: some providers repeat it.
async fn error_body(mut response: Response, route: &Route) -> Vec<u8> {
    let mut body = Vec::new();
    let reading = async {
        // The status is known, so a body that breaks off is a short text and not another failure.
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk);
            if MAX_MODEL_ERROR_BYTES <= body.len() {
                break;
            }
        }
    };

    // After the timeout, the part that has arrived is used.
    timeout(ERROR_BODY_TIMEOUT, reading).await.ok();

    let mut body = route.masked(body);
    body.truncate(MAX_MODEL_ERROR_BYTES);
    body
}

/// Sends bytes in pieces of bounded size.
async fn pass(parts: &mpsc::Sender<ModelPart>, bytes: &[u8]) -> Result<(), Gone> {
    for piece in bytes.chunks(MAX_PIECE_BYTES) {
        let quoted = format!("\"{}\"", STANDARD.encode(piece));
        // Base64 between quotation marks is JSON.
        if let Ok(piece) = OutputPiece::new(OutputStream::Stdout, quoted) {
            send(parts, ModelPart::Piece(piece)).await?;
        }
    }
    Ok(())
}

async fn send(parts: &mpsc::Sender<ModelPart>, part: ModelPart) -> Result<(), Gone> {
    parts.send(part).await.map_err(|_closed| Gone)
}

fn failed(kind: ModelFailureKind, host: &str, text: &str) -> Stop {
    Stop::Failed(failure(kind, format!("{host}: {text}")))
}

fn silent(host: &str, idle: Duration) -> Stop {
    failed(ModelFailureKind::Idle, host, &format!("nothing came for {} s", idle.as_secs_f64()))
}
