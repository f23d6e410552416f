//! Messages between the worker and one MCP server: JSON-RPC, one message per line. The server may be hostile: lines,
//! queues and waits are bounded.

use crate::strip_ansi;
use quackd_ipc::lines::{Line, LineReader};
use quackd_process::{Piped, Pipes};
use quackd_protocol::foreign_text::message_line;
use quackd_protocol::surrogates::without_lone_surrogates;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// Longest line of a server, in bytes.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// Lines that wait for the server to read. A further one waits too.
const QUEUED_LINES: usize = 8;

/// Size of the kept end of the server's stderr, in bytes.
const STDERR_BYTES: usize = 8 * 1024;

/// Longest text of a server in an error, in bytes.
const MAX_SHOWN_BYTES: usize = 300;

/// Time for the last lines of a server that has exited. A process that it left behind may hold the pipe longer.
const LAST_LINES: Duration = Duration::from_millis(200);

/// Interval for reaping orphans below the server.
const REAP_INTERVAL: Duration = Duration::from_secs(5);

/// Result of a request, a JSON text.
pub(super) type Reply = Box<RawValue>;

/// Error of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    /// The caller canceled.
    #[error("it was aborted")]
    Aborted,
    /// The deadline passed.
    #[error("it did not answer in time")]
    TimedOut,
    /// The server was started too often.
    #[error("it ended {0} times within a minute and is not started again; {1}")]
    TooOften(usize, String),
    /// The process cannot be started.
    #[error("cannot start it: {0}")]
    NotStarted(String),
    /// The process has ended.
    #[error("{0}")]
    Ended(String),
    /// The server sent a line that is too long.
    #[error("it sent more than {} MiB on one line", MAX_LINE_BYTES / 1024 / 1024)]
    TooLong,
    /// The server answered with an error.
    #[error("{0}")]
    Refused(String),
    /// The server's answer is not one of the protocol.
    #[error("its answer is invalid")]
    Invalid,
}

/// A running server. Dropping it kills the server and its processes.
#[derive(Debug)]
pub(super) struct Connection {
    queue: mpsc::Sender<String>,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

/// State that the calls share with the task that serves the pipes.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    waiting: HashMap<u64, oneshot::Sender<Result<Reply, RequestError>>>,
    stderr: Vec<u8>,
    /// Set when the server has ended.
    end: Option<RequestError>,
}

/// A message of the server.
#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    result: Option<Reply>,
    #[serde(default)]
    error: Option<MessageError>,
}

#[derive(Deserialize)]
struct MessageError {
    #[serde(default)]
    message: String,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Connection {
    /// Takes over the pipes of a started server.
    pub(super) fn serve(process: Piped, pipes: Pipes) -> io::Result<Self> {
        let stdin = pipe::Sender::from_owned_fd(pipes.stdin)?;
        let stdout = pipe::Receiver::from_owned_fd(pipes.stdout)?;
        let stderr = pipe::Receiver::from_owned_fd(pipes.stderr)?;
        let shared = Arc::<Shared>::default();
        let (queue, lines) = mpsc::channel(QUEUED_LINES);
        let reader = Reader { shared: Arc::clone(&shared), queue: queue.clone() };
        let serving = tokio::spawn(serve(process, stdin, stdout, stderr, lines, reader));
        Ok(Self { queue, shared, serving })
    }

    /// Returns the state of the server, which outlives its process.
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Whether the server has ended.
    pub(super) fn end(&self) -> Option<RequestError> {
        self.shared.with(|state| state.end.clone())
    }

    /// Sends a request and waits for its result. A request that is given up is canceled at the server.
    pub(super) async fn request(
        &self,
        method: &str,
        parameters: &Value,
        deadline: Instant,
        cancel: &CancellationToken,
    ) -> Result<Reply, RequestError> {
        let (sender, receiver) = oneshot::channel();
        let number = self.shared.with(|state| {
            if let Some(end) = &state.end {
                return Err(end.clone());
            }
            state.last += 1;
            state.waiting.insert(state.last, sender);
            Ok(state.last)
        })?;
        // Removes the request on every way out, also if the caller drops this future.
        let _forgotten = Forget { shared: &self.shared, number };

        let message =
            json!({ "jsonrpc": "2.0", "id": number, "method": method, "params": parameters });
        let answered = async {
            // A closed queue means that the server has ended, and its end is on the channel.
            self.queue.send(message.to_string()).await.ok();
            receiver.await.unwrap_or(Err(RequestError::Invalid))
        };

        let given_up = tokio::select! {
            biased;
            // A result that has arrived takes precedence over the limits.
            answer = answered => return answer,
            () = cancel.cancelled() => RequestError::Aborted,
            () = sleep_until(deadline.into()) => RequestError::TimedOut,
        };

        let reason = given_up.to_string();
        self.notify("notifications/cancelled", &json!({ "requestId": number, "reason": reason }));
        Err(given_up)
    }

    /// Sends a notification, unless the server is too far behind.
    pub(super) fn notify(&self, method: &str, parameters: &Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": parameters });
        // Waiting would not help a server that does not read its input.
        self.queue.try_send(message.to_string()).ok();
    }
}

/// Removes a request from the table.
struct Forget<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.shared.with(|state| state.waiting.remove(&self.number));
    }
}

impl Shared {
    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        // A panic aborts the process (docs/adr/0003), so only tests can poison the lock.
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the end of the server's stderr.
    pub(super) fn stderr(&self) -> String {
        self.with(|state| strip_ansi::tail(&state.stderr, 0, STDERR_BYTES).text)
    }

    /// Answers all requests with this error.
    fn fail_all(&self, error: &RequestError) {
        let waiting = self.with(|state| std::mem::take(&mut state.waiting));
        for sender in waiting.into_values() {
            // The caller may have given up.
            sender.send(Err(error.clone())).ok();
        }
    }

    /// Records the end of the server.
    fn end(&self) {
        let error = self.with(|state| {
            let last = strip_ansi::tail(&state.stderr, 0, STDERR_BYTES).text;
            let last = last.lines().rev().map(str::trim).find(|line| !line.is_empty());
            let error = RequestError::Ended(match last {
                Some(line) => format!("it has ended; its last line on stderr: {}", shown(line)),
                None => "it has ended".to_owned(),
            });
            state.end.get_or_insert(error).clone()
        });
        self.fail_all(&error);
    }
}

/// Serves the pipes until the server ends.
async fn serve(
    process: Piped,
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
    lines: mpsc::Receiver<String>,
    reader: Reader,
) {
    let shared = Arc::clone(&reader.shared);
    let closed = CancellationToken::new();
    let reading = async {
        reader.read(stdout).await;
        closed.cancel();
    };
    let mut both = Box::pin(async { tokio::join!(reading, keep_tail(stderr, &shared)) });

    let is_read = tokio::select! {
        biased;
        _ = &mut both => true,
        () = closed.cancelled() => false,
        () = process.exited() => false,
        () = write(lines, stdin) => false,
        never = reap(&process) => match never {},
    };

    if !is_read {
        // The pipes may contain lines from before the exit. A process that keeps them open must not delay the end.
        timeout(LAST_LINES, &mut both).await.ok();
    }

    drop(both);
    shared.end();
    // Dropping the process kills what is left of it.
    drop(process);
}

async fn reap(process: &Piped) -> Infallible {
    // After missed ticks, one check reaps all orphans.
    let mut reaping = interval(REAP_INTERVAL);
    reaping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        reaping.tick().await;
        process.reap_orphans();
    }
}

/// Writes lines until the server reads no more.
async fn write(mut lines: mpsc::Receiver<String>, mut stdin: pipe::Sender) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        if stdin.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Keeps the end of the server's stderr.
async fn keep_tail(mut stderr: pipe::Receiver, shared: &Shared) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
        shared.with(|state| {
            state.stderr.extend_from_slice(buffer.get(..n).unwrap_or_default());
            let excess = state.stderr.len().saturating_sub(STDERR_BYTES);
            state.stderr.drain(..excess);
        });
    }
}

/// Reads the messages of the server.
#[derive(Debug)]
struct Reader {
    shared: Arc<Shared>,
    queue: mpsc::Sender<String>,
}

impl Reader {
    async fn read(self, stdout: pipe::Receiver) {
        let mut lines = LineReader::new(stdout, MAX_LINE_BYTES);
        while let Ok(Some(line)) = lines.next().await {
            match line {
                Line::Text(line) => self.take(&line),
                // It is not known which request it answered.
                Line::TooLong => self.shared.fail_all(&RequestError::TooLong),
            }
            // A flood of lines must not keep the other tasks from running.
            tokio::task::yield_now().await;
        }
    }

    /// Handles one message. Any other line, for example of a log, is skipped.
    fn take(&self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let text = without_lone_surrogates(&text);
        let Ok(message) = serde_json::from_str::<Message>(&text) else { return };
        let Message { id, method, result, error } = message;

        match (method, id) {
            (Some(method), Some(id)) => {
                let reply = match method.as_str() {
                    "ping" => json!({ "jsonrpc": "2.0", "id": id, "result": {} }),
                    _ => {
                        let error = json!({ "code": -32601, "message": "Method not found" });
                        json!({ "jsonrpc": "2.0", "id": id, "error": error })
                    }
                };
                // A server that does not read its input gets no reply.
                self.queue.try_send(reply.to_string()).ok();
            }
            (None, Some(id)) => {
                let Some(number) = id.as_u64() else { return };
                let Some(sender) = self.shared.with(|state| state.waiting.remove(&number)) else {
                    return;
                };
                let answer = match (result, error) {
                    (Some(result), _) => Ok(result),
                    (None, Some(error)) => Err(RequestError::Refused(shown(&error.message))),
                    (None, None) => Err(RequestError::Invalid),
                };
                // The caller may have given up.
                sender.send(answer).ok();
            }
            // A notification: nothing depends on it.
            (_, None) => {}
        }
    }
}

/// Returns a text of the server for an error: one line of limited length.
fn shown(text: &str) -> String {
    let line = message_line(text, MAX_SHOWN_BYTES);
    let cut = line.floor_char_boundary(MAX_SHOWN_BYTES.min(line.len()));
    line.get(..cut).unwrap_or_default().to_owned()
}
