//! The task of one [`crate::Client`]: the only reader and the only writer of its socket.
//!
//! State: the stream, the line in progress, the pending replies. Receives `ConnectionCommand` from the client. Sends
//! replies to the callers and events to the follower. Stops when the client is dropped, when the daemon disconnects, or
//! when the daemon violates the protocol.
//!
//! Reading never waits for writing. Otherwise both sides would block if the daemon stopped reading until the client
//! takes its replies. Reading waits for a slow follower, except while a reply is pending: the follower may be the
//! caller that waits for it.

use crate::ClientError;
use crate::events::{Event, EventSender};
use interprocess::local_socket::tokio::Stream;
use quackd_ipc::lines::{Line, LineReader};
use quackd_protocol::client::{ErrorCode, ServerLine};
use quackd_protocol::limits::{MAX_CLIENT_REQUESTS, MAX_LINE_BYTES};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::io::Cursor;
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

/// Data of a reply, or the daemon's error.
pub(crate) type Response = Result<Option<Box<RawValue>>, Refusal>;

/// An error of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    text: String,
    code: Option<ErrorCode>,
}

impl From<Refusal> for ClientError {
    fn from(Refusal { text, code }: Refusal) -> Self {
        Self::Refused { text, code }
    }
}

/// Request from the client to the connection's task.
#[derive(Debug)]
pub(crate) enum ConnectionCommand {
    /// Send this request and return the reply.
    Call(PendingRequest),
    /// Send events to this receiver from now on.
    Follow(EventSender),
}

/// A request without a reply.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    pub(crate) id: String,
    /// The request as JSON, with its LF.
    pub(crate) line: Vec<u8>,
    pub(crate) answer: oneshot::Sender<Response>,
}

/// Reason why the connection closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DisconnectReason {
    /// The daemon or the system closed it.
    Disconnected,
    /// The daemon closed it with an error about the connection and not about one request.
    Refused(Refusal),
    /// The client closed it after a protocol violation.
    Protocol(String),
}

/// Serves a connection to the daemon of this machine until it closes.
pub(crate) async fn run(
    stream: Stream,
    commands: mpsc::Receiver<ConnectionCommand>,
    closed: Arc<OnceLock<DisconnectReason>>,
) {
    run_over(&stream, &stream, commands, closed).await;
}

/// Serves a connection until it closes. Sets `closed` before it drops the pending callers.
pub(crate) async fn run_over(
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin,
    mut commands: mpsc::Receiver<ConnectionCommand>,
    closed: Arc<OnceLock<DisconnectReason>>,
) {
    let mut connection = Connection { waiting: HashMap::new(), feed: None, refusal: None };
    // `commands` and `connection` are dropped after `closed` is set, so that callers that see them closed find the
    // reason.
    let reason = connection.serve(reader, writer, &mut commands).await;
    // Set only here, so it cannot fail.
    closed.set(reason).ok();
}

struct Connection {
    waiting: HashMap<String, oneshot::Sender<Response>>,
    /// Without a follower, events are discarded.
    feed: Option<EventSender>,
    /// An error without a request id, such as `Too many connections`. It is the reason if the daemon then disconnects.
    refusal: Option<Refusal>,
}

impl Connection {
    async fn serve(
        &mut self,
        reader: impl AsyncRead + Unpin,
        mut writer: impl AsyncWrite + Unpin,
        commands: &mut mpsc::Receiver<ConnectionCommand>,
    ) -> DisconnectReason {
        let mut lines = LineReader::new(reader, MAX_LINE_BYTES);
        let mut outgoing = Cursor::new(Vec::new());
        let mut idle = true;

        loop {
            let may_read = self.may_read();
            // All four branches are cancel-safe.
            tokio::select! {
                // A request is written completely before the next one is taken: lines must not be
                // mixed.
                command = commands.recv(), if idle => match command {
                    Some(ConnectionCommand::Call(call)) => {
                        self.expect(call.id, call.answer);
                        outgoing = Cursor::new(call.line);
                        idle = false;
                    }
                    Some(ConnectionCommand::Follow(feed)) => self.feed = Some(feed),
                    None => return DisconnectReason::Disconnected,
                },
                written = writer.write_buf(&mut outgoing), if !idle => match written {
                    Ok(0) | Err(_) => return self.hung_up(&mut lines).await,
                    Ok(_) => idle = is_spent(&outgoing),
                },
                () = room(self.feed.as_ref()), if !may_read => {}
                line = lines.next(), if may_read => match line {
                    Ok(Some(line)) => if let Err(reason) = self.take(&line) {
                        return reason;
                    },
                    Ok(None) | Err(_) => return self.end(),
                },
            }
        }
    }

    fn may_read(&self) -> bool {
        // A canceled caller takes no reply, so it does not justify the larger limit.
        let has_callers = || self.waiting.values().any(|answer| !answer.is_closed());
        self.feed.as_ref().is_none_or(|feed| feed.has_room(false) || feed.has_room(has_callers()))
    }

    /// After a failed write: reads the daemon's reason, if it sent one before it disconnected.
    async fn hung_up(
        &mut self,
        lines: &mut LineReader<impl AsyncRead + Unpin>,
    ) -> DisconnectReason {
        while let Ok(Some(line)) = lines.next().await {
            if let Err(reason) = self.take(&line) {
                return reason;
            }
        }
        self.end()
    }

    fn end(&mut self) -> DisconnectReason {
        self.refusal.take().map_or(DisconnectReason::Disconnected, DisconnectReason::Refused)
    }

    fn expect(&mut self, id: String, answer: oneshot::Sender<Response>) {
        // Canceled callers leave their entry behind. Remove the entries, so that they do not accumulate if the daemon
        // never answers.
        if MAX_CLIENT_REQUESTS <= self.waiting.len() {
            self.waiting.retain(|_, answer| !answer.is_closed());
        }
        self.waiting.insert(id, answer);
    }

    fn take(&mut self, line: &Line) -> Result<(), DisconnectReason> {
        let Line::Text(text) = line else {
            return Err(DisconnectReason::Protocol(format!(
                "a line is longer than {MAX_LINE_BYTES} bytes"
            )));
        };

        let line: ServerLine = match serde_json::from_slice(text) {
            Ok(line) => line,
            // A daemon that crashed while writing leaves an incomplete line.
            Err(e) if e.is_eof() => return Err(self.end()),
            // Skip an unreadable event: its content may come from another program.
            Err(_) if is_event(text) => return Ok(()),
            Err(e) => return Err(DisconnectReason::Protocol(e.to_string())),
        };

        match (line.ok, line.event) {
            (Some(ok), _) => {
                let refusal = Refusal { text: line.error.unwrap_or_default(), code: line.code };
                let answer = if ok { Ok(line.data) } else { Err(refusal) };
                self.answer(line.id.as_ref(), answer);
            }
            (None, Some(name)) => {
                // Without a follower, the event is discarded.
                if let Some(feed) = &self.feed {
                    let (session_id, data) = (line.session_id, line.data);
                    let (seq, turn) = (line.seq, line.turn);
                    feed.push(Event { name, session_id, data, seq, turn }, text.len());
                }
            }
            // A line of a newer protocol version.
            (None, None) => {}
        }
        Ok(())
    }

    fn answer(&mut self, id: Option<&Value>, answer: Response) {
        let caller = id.and_then(Value::as_str).and_then(|id| self.waiting.remove(id));
        match (caller, answer) {
            // A missing caller has timed out, so the reply can be discarded.
            (Some(caller), answer) => {
                caller.send(answer).ok();
            }
            // Kept until the daemon disconnects, because it belongs to no request.
            (None, Err(refusal)) => self.refusal = Some(refusal),
            (None, Ok(_)) => {}
        }
    }
}

/// Returns true if an unreadable line is an event. Any other line may be a reply that a caller waits for.
fn is_event(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Line {
        ok: Option<IgnoredAny>,
        event: Option<IgnoredAny>,
    }
    serde_json::from_slice(line).is_ok_and(|line: Line| line.ok.is_none() && line.event.is_some())
}

/// Waits until the follower has taken an event.
async fn room(feed: Option<&EventSender>) {
    match feed {
        Some(feed) => feed.changed().await,
        // Without a follower, reading never pauses.
        None => std::future::pending().await,
    }
}

fn is_spent(outgoing: &Cursor<Vec<u8>>) -> bool {
    usize::try_from(outgoing.position()).is_ok_and(|at| outgoing.get_ref().len() <= at)
}
