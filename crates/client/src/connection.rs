//! The task behind one [`crate::Client`]: the only reader and the only writer of its socket.
//!
//! Owns: the stream, the line that is being written, the answers that are awaited.
//! Receives: `Command` (the client). Gives: answers to the callers, events to the follower.
//! Ends: when the client is dropped, the daemon hangs up or the daemon breaks the protocol.
//!
//! Reading never waits for writing, so that a daemon that stops reading us until we take its replies
//! cannot bring both sides to a halt. It waits for a follower that is behind, but not while a reply is
//! awaited: the follower may be who awaits it.

use crate::events::{Event, Feed};
use interprocess::local_socket::tokio::Stream;
use quackd_ipc::lines::{Line, LineReader};
use quackd_protocol::client::ServerLine;
use quackd_protocol::limits::{MAX_CLIENT_REQUESTS, MAX_LINE_BYTES};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::io::Cursor;
use std::sync::{Arc, OnceLock};
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, oneshot};

/// Data of a reply, or the daemon's text if it refused.
pub(crate) type Answer = Result<Option<Box<RawValue>>, String>;

/// What the client wants of its connection.
#[derive(Debug)]
pub(crate) enum Command {
    /// Send this and bring the answer.
    Call(Call),
    /// Bring events here from now on.
    Follow(Feed),
}

/// One request on its way.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: String,
    /// The request with its LF.
    pub(crate) line: Vec<u8>,
    pub(crate) answer: oneshot::Sender<Answer>,
}

/// Why the connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Closed {
    /// By the daemon or the system.
    Disconnected,
    /// By the daemon, with a text that is about the connection and not about one request.
    Refused(String),
    /// By us: this is not our protocol.
    Protocol(String),
}

/// Serves the connection to its end. `closed` is set before the callers in flight are let go.
pub(crate) async fn run(
    stream: Stream,
    mut commands: mpsc::Receiver<Command>,
    closed: Arc<OnceLock<Closed>>,
) {
    let mut connection = Connection { waiting: HashMap::new(), feed: None, refusal: None };
    // `commands` and `connection` outlive the reason: who finds them gone finds the reason there.
    let reason = connection.serve(&stream, &mut commands).await;
    // Set once, here; and nothing can be done about it if not.
    let _already = closed.set(reason);
}

struct Connection {
    waiting: HashMap<String, oneshot::Sender<Answer>>,
    /// Without one, events are for nobody.
    feed: Option<Feed>,
    /// An error that names no request, such as `Too many connections`: the reason if the end follows.
    refusal: Option<String>,
}

impl Connection {
    async fn serve(&mut self, stream: &Stream, commands: &mut mpsc::Receiver<Command>) -> Closed {
        let mut lines = LineReader::new(stream, MAX_LINE_BYTES);
        let mut writer = stream;
        let mut outgoing = Cursor::new(Vec::new());
        let mut idle = true;
        loop {
            let may_read = self.may_read();
            // Each of the four is cancel-safe.
            tokio::select! {
                command = commands.recv(), if idle => match command {
                    Some(Command::Call(call)) => {
                        self.expect(call.id, call.answer);
                        outgoing = Cursor::new(call.line);
                        idle = false;
                    }
                    Some(Command::Follow(feed)) => self.feed = Some(feed),
                    None => return Closed::Disconnected,
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
        let has_callers = || self.waiting.values().any(|answer| !answer.is_closed());
        self.feed.as_ref().is_none_or(|feed| feed.has_room(false) || feed.has_room(has_callers()))
    }

    /// Writing failed: the daemon may have said why before it hung up.
    async fn hung_up(&mut self, lines: &mut LineReader<&Stream>) -> Closed {
        while let Ok(Some(line)) = lines.next().await {
            if let Err(reason) = self.take(&line) {
                return reason;
            }
        }
        self.end()
    }

    fn end(&mut self) -> Closed {
        self.refusal.take().map_or(Closed::Disconnected, Closed::Refused)
    }

    fn expect(&mut self, id: String, answer: oneshot::Sender<Answer>) {
        // Callers that gave up leave their entry behind; a daemon that never answers must not make
        // them pile up.
        if MAX_CLIENT_REQUESTS <= self.waiting.len() {
            self.waiting.retain(|_, answer| !answer.is_closed());
        }
        self.waiting.insert(id, answer);
    }

    fn take(&mut self, line: &Line) -> Result<(), Closed> {
        let Line::Text(text) = line else {
            return Err(Closed::Protocol(format!("a line is longer than {MAX_LINE_BYTES} bytes")));
        };
        let line: ServerLine = match serde_json::from_slice(text) {
            Ok(line) => line,
            // Half a line is what a daemon leaves that died while it wrote.
            Err(e) if e.is_eof() => return Err(self.end()),
            // Skip an unreadable event: its content may come from another program.
            Err(_) if is_event(text) => return Ok(()),
            Err(e) => return Err(Closed::Protocol(e.to_string())),
        };
        match (line.ok, line.event) {
            (Some(ok), _) => self.answer(ok, line.id.as_ref(), line.error, line.data),
            (None, Some(name)) => {
                if let Some(feed) = &self.feed {
                    let (session_id, data, seq) = (line.session_id, line.data, line.seq);
                    feed.push(Event { name, session_id, data, seq }, text.len());
                }
            }
            // Something newer than this client.
            (None, None) => {}
        }
        Ok(())
    }

    fn answer(
        &mut self,
        ok: bool,
        id: Option<&Value>,
        error: Option<String>,
        data: Option<Box<RawValue>>,
    ) {
        let caller = id.and_then(Value::as_str).and_then(|id| self.waiting.remove(id));
        let answer = if ok { Ok(data) } else { Err(error.unwrap_or_default()) };
        match (caller, answer) {
            // A caller that is gone has timed out: nothing is lost.
            (Some(caller), answer) => {
                let _gone = caller.send(answer);
            }
            (None, Err(text)) => self.refusal = Some(text),
            (None, Ok(_)) => {}
        }
    }
}

/// Whether an unreadable line is an event. A caller may be waiting for any other line.
fn is_event(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Line {
        ok: Option<IgnoredAny>,
        event: Option<IgnoredAny>,
    }
    serde_json::from_slice(line).is_ok_and(|line: Line| line.ok.is_none() && line.event.is_some())
}

/// Waits until the follower has taken something.
async fn room(feed: Option<&Feed>) {
    match feed {
        Some(feed) => feed.changed().await,
        // Without a follower reading never stops.
        None => std::future::pending().await,
    }
}

fn is_spent(outgoing: &Cursor<Vec<u8>>) -> bool {
    usize::try_from(outgoing.position()).is_ok_and(|at| outgoing.get_ref().len() <= at)
}
