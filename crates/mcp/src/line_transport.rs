//! The protocol as lines of JSON over two streams, such as stdin and stdout.
//!
//! rmcp has such a transport too. This one also answers lines that are not JSON, not a message or too long, refuses ids
//! that are in use, bounds the requests in flight, reports the end of the input at once, and reads batches if the agent's
//! revision has them.

use crate::batches::{self, Batches, NotInABatch, Refusal, refusal, unreadable};
use crate::lock;
use bytes::Bytes;
use quackd_ipc::lines::{Line, LineReader};
use quackd_protocol::limits::MAX_LINE_BYTES;
use quackd_protocol::surrogates;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcMessage, ProtocolVersion,
    RequestId, ServerJsonRpcMessage, ServerResult,
};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{ServerHandler, ServiceExt};
use serde_json::value::RawValue;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Requests without an answer. Each may hold a long result, and further requests are refused.
const MAX_REQUESTS: usize = 256;

/// Messages that wait for a reader of the output. The senders of further ones wait.
const MAX_WAITING: usize = 16;

/// Time for the last messages to be read after the input has ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves one agent until its input ends, it stops reading, or `ended` is cancelled.
pub async fn serve_lines<S, R, W>(server: S, input: R, output: W, ended: CancellationToken)
where
    S: ServerHandler,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let transport = LineTransport::new(input, output, ended.clone());
    // Otherwise the agent has left before its first request, or that got an error as its answer.
    if let Ok(running) = server.serve_with_ct(transport, ended).await {
        // An error is a panic in the service's task, which has already been reported.
        running.waiting().await.ok();
    }
}

/// Reads and writes lines for rmcp.
struct LineTransport<R> {
    lines: LineReader<R>,
    output: Option<mpsc::Sender<Bytes>>,
    writer: JoinHandle<()>,
    in_flight: Arc<Mutex<HashSet<RequestId>>>,
    batches: Arc<Mutex<Batches>>,
    /// Whether the revision of the connection has batches.
    has_batches: Arc<AtomicBool>,
    /// Messages of a batch that the service has not received.
    waiting: VecDeque<ClientJsonRpcMessage>,
    /// Answers to lines that do not reach the service, and those of batches that a cancellation completes.
    answers: VecDeque<Bytes>,
    /// Whether a request other than `ping` and `server/discover` has arrived. rmcp ends the connection if anything
    /// but a request comes before.
    has_begun: bool,
    /// Cancelled when the agent is gone, so that its calls end.
    ended: CancellationToken,
}

impl<R: AsyncRead + Unpin> LineTransport<R> {
    fn new<W>(input: R, output: W, ended: CancellationToken) -> Self
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (lines, waiting) = mpsc::channel(MAX_WAITING);
        Self {
            lines: LineReader::new(input, MAX_LINE_BYTES),
            output: Some(lines),
            writer: tokio::spawn(write(output, waiting)),
            in_flight: Arc::default(),
            batches: Arc::default(),
            has_batches: Arc::default(),
            waiting: VecDeque::new(),
            answers: VecDeque::new(),
            has_begun: false,
            ended,
        }
    }

    /// Returns the first message in a line. `None` if the line is answered or ignored.
    fn take(&mut self, line: &[u8]) -> Option<ClientJsonRpcMessage> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return None;
        }
        let taken = match batches::messages(line) {
            None => self.read(line),
            Some(batch) => self.take_batch(batch).map(|()| self.waiting.pop_front()),
        };
        taken.unwrap_or_else(|refusal| {
            self.answers.extend(encoded(&refusal));
            None
        })
    }

    /// Reads the messages of a batch, and opens it for their answers.
    fn take_batch(&mut self, batch: serde_json::Result<Vec<Box<RawValue>>>) -> Result<(), Refusal> {
        let messages = batches::admit(batch, self.has_batches.load(Ordering::Relaxed))?;
        let (mut open, mut refusals) = (HashSet::new(), Vec::new());
        for message in &messages {
            match self.read(message.get().as_bytes()) {
                Ok(Some(JsonRpcMessage::Request(request)))
                    if matches!(request.request, ClientRequest::InitializeRequest(_)) =>
                {
                    lock(&self.in_flight).remove(&request.id);
                    refusals.push(refusal("initialize is part of a batch", Some(request.id)));
                }
                Ok(message) => {
                    if let Some(JsonRpcMessage::Request(request)) = &message {
                        open.insert(request.id.clone());
                    }
                    self.waiting.extend(message);
                }
                Err(refusal) => refusals.push(*refusal),
            }
        }

        let answers = lock(&self.batches).begin(open, &refusals);
        self.answers.extend(answers.map(Bytes::from));
        Ok(())
    }

    /// Returns the message in a text. `Ok(None)` if it is ignored.
    fn read(&mut self, text: &[u8]) -> Result<Option<ClientJsonRpcMessage>, Refusal> {
        let message = surrogates::parse::<ClientJsonRpcMessage>(text)
            .map_err(|error| unreadable(text, &error))?;
        match &message {
            JsonRpcMessage::Request(request) => {
                let mut in_flight = lock(&self.in_flight);
                let refused =
                    |text: &'static str| Box::new(refusal(text, Some(request.id.clone())));
                if in_flight.contains(&request.id) {
                    return Err(refused("the id is in use"));
                }
                if MAX_REQUESTS <= in_flight.len() {
                    return Err(refused("too many requests are in flight"));
                }

                in_flight.insert(request.id.clone());
                self.has_begun |= !matches!(
                    request.request,
                    ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_)
                );
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    // rmcp sends no answer to a cancelled request.
                    lock(&self.in_flight).remove(id);
                    let answers = lock(&self.batches).cancel(id);
                    self.answers.extend(answers.map(Bytes::from));
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }

        let is_request = matches!(message, JsonRpcMessage::Request(_));
        // Before the first request, no other message has a meaning.
        Ok((self.has_begun || is_request).then_some(message))
    }
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for LineTransport<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let (output, in_flight) = (self.output.clone(), Arc::clone(&self.in_flight));
        let batches = Arc::clone(&self.batches);

        if let JsonRpcMessage::Response(response) = &message
            && let ServerResult::InitializeResult(result) = &response.result
        {
            let has_batches = result.protocol_version == ProtocolVersion::V_2025_03_26;
            self.has_batches.store(has_batches, Ordering::Relaxed);
        }

        async move {
            let id = match &message {
                JsonRpcMessage::Response(response) => Some(&response.id),
                JsonRpcMessage::Error(error) => error.id.as_ref(),
                _ => None,
            };

            let of_batch = id.map(|id| lock(&batches).answer(id, &message));
            let line = match of_batch {
                Some(Ok(answers)) => answers.map(Bytes::from),
                Some(Err(NotInABatch)) | None => {
                    Some(encoded(&message).ok_or(io::ErrorKind::InvalidData)?)
                }
            };

            let sent = match (output, line) {
                (_, None) => Ok(()),
                (Some(output), Some(line)) => {
                    output.send(line).await.map_err(|_gone| io::ErrorKind::BrokenPipe.into())
                }
                (None, Some(_)) => Err(io::ErrorKind::NotConnected.into()),
            };

            // After the answer is sent: until then the id is in use.
            if let Some(id) = id {
                lock(&in_flight).remove(id);
            }
            sent
        }
    }

    /// Cancel-safe: an answer stays until the output has room, and the reader keeps what it has read.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let output = self.output.clone()?;
        loop {
            while !self.answers.is_empty() {
                let room = output.reserve().await.ok()?;
                if let Some(line) = self.answers.pop_front() {
                    room.send(line);
                }
            }

            if let Some(message) = self.waiting.pop_front() {
                return Some(message);
            }

            let line = tokio::select! {
                // The agent no longer reads.
                () = output.closed() => Ok(None),
                line = self.lines.next() => line,
            };

            match line {
                Ok(Some(Line::Text(line))) => {
                    if let Some(message) = self.take(&line) {
                        return Some(message);
                    }
                }
                Ok(Some(Line::TooLong)) => {
                    let text = format!("the message is longer than {MAX_LINE_BYTES} bytes");
                    self.answers.extend(encoded(&refusal(text, None)));
                }
                Ok(None) | Err(_) => {
                    // The agent does not wait for the running calls.
                    self.ended.cancel();
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.output = None;
        // An agent that does not read loses the last messages.
        if timeout(CLOSE_TIMEOUT, &mut self.writer).await.is_err() {
            self.writer.abort();
        }
        Ok(())
    }
}

/// Writes messages until the output breaks or all senders are gone.
async fn write<W: AsyncWrite + Unpin>(mut output: W, mut lines: mpsc::Receiver<Bytes>) {
    while let Some(line) = lines.recv().await {
        if output.write_all(&line).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}

/// Returns the line of a message.
fn encoded(message: &ServerJsonRpcMessage) -> Option<Bytes> {
    let mut line = serde_json::to_vec(message).ok()?;
    line.push(b'\n');
    Some(line.into())
}
