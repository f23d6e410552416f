//! One client connection: reads request lines, writes replies.
//!
//! A connection consists of two tasks. It is not an actor, because it receives no messages. Other modules only hold its
//! [`ClientOutbox`]. The reading task handles one line at a time. A method that waits for a worker runs in a separate
//! task, so that a slow call does not block others. All other methods are answered in the order of arrival.
//! [`crate::wire::unanswered`] limits the number and the bytes of a client's requests.
//!
//! When a client disconnects, its calls keep running until their end or deadline. Its following and its voice role end
//! when it stops sending.
//!
//! The listener serves the Unix socket. Remote control passes a pair of pipes. A single HTTP request has no connection:
//! [`super::remote`] answers it.

use crate::events::client_registry::{Client, Transport};
use crate::methods::{self, Caller};
use crate::metrics::Metrics;
use crate::registry::Registry;
use crate::services::Services;
use crate::wire;
use crate::wire::ParsedRequest;
use crate::wire::client_outbox::{ClientOutbox, WriterExit, outbox};
use crate::wire::unanswered::{RequestRoom, Unanswered};
use actix::Addr;
use quackd_ipc::halves::ImmediateWriter;
use quackd_ipc::lines::{Line, LineError, LineReader};
use quackd_protocol::client::{PageRights, ToldLine};
use quackd_protocol::limits::{MAX_LINE_BYTES, PARTIAL_LINE_TIMEOUT};
use quackd_protocol::{SessionId, VERSION};
use quackd_remote::Page;
use serde::Serialize;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use tokio::io::{AsyncRead, AsyncWrite};

/// Origin of a connection: the listener or remote control.
#[derive(Debug)]
pub(crate) struct ConnectionOrigin {
    pub(crate) transport: Transport,
    /// Address that a remote client connected to, for its first event.
    pub(crate) websocket_url: Option<String>,
    /// Writes to the socket of a local client at once.
    pub(crate) immediate: Option<ImmediateWriter>,
    /// Process of a local client.
    pub(crate) pid: Option<u32>,
    /// The page whose token a remote client has.
    pub(crate) page: Option<Page>,
}

/// Data of the event `remote_ready`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RemoteReadyData<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    client_id: &'a str,
    websocket_url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rights: Option<PageRights>,
    /// For a page, which loads itself again after an upgrade of the daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
}

/// Session id in the first event of remote clients, which have no session.
const REMOTE_SESSION: &str = "remote-control";

/// Serves one client until it disconnects or the last reply is written. Reads and writes lines.
pub(crate) async fn serve<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    reading: R,
    writing: W,
    origin: ConnectionOrigin,
    services: Rc<Services>,
    registry: Addr<Registry>,
) {
    let metrics = Arc::clone(&services.sessions.metrics);
    metrics.clients.add(1);
    let _counted = ClientCountGuard(&metrics);

    let immediate = origin.immediate;
    let (outbox, writing) = outbox(
        writing,
        immediate.clone(),
        Arc::clone(&metrics),
        Arc::clone(&services.memory.queued),
    );

    let client = match Client::new(origin.transport, Some(outbox.clone())) {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(%error, "cannot create a client id, client refused");
            return;
        }
    };

    client.pid.set(origin.pid);
    let rights = origin.page.as_ref().map(|page| page.rights);
    if let Some(page) = origin.page {
        // A new client has none yet.
        client.page.set(page).ok();
    }
    if let Some(websocket_url) = &origin.websocket_url {
        let client_id = client.id.as_str();
        let kind = "remote_ready";
        let version = rights.map(|_| VERSION);
        let data = RemoteReadyData { kind, client_id, websocket_url, rights, version };
        let session_id = SessionId::from(REMOTE_SESSION);
        let ready = ToldLine { event: data.kind, session_id: &session_id, data };
        // A new queue has space. If the client is gone already, reading ends at once.
        outbox.push(wire::event(&ready)).ok();
    }

    services.clients.add(&client);
    let connected = ConnectionGuard(Rc::new(Caller::new(services, registry, client)));
    let reading = read(reading, connected, outbox);

    tokio::pin!(reading, writing);
    let end = tokio::select! {
        // When the client has closed its sending side, the pending replies are still written.
        () = &mut reading => tokio::select! {
            end = &mut writing => end,
            () = wait_for_close(immediate) => WriterExit::Closed,
        },
        end = &mut writing => end,
    };

    if end == WriterExit::Slow {
        tracing::warn!(reason = "slow_client", "client disconnected");
    }
}

/// Waits until the client has closed its receiving side too: its calls run to their end without a connection. Waits
/// forever for a remote client, whose writing task ends with its pipe.
async fn wait_for_close(immediate: Option<ImmediateWriter>) {
    match immediate {
        Some(socket) if socket.wait_for_peer_close().await.is_ok() => {}
        // Without a descriptor to spare, the connection ends with its last reply.
        _ => std::future::pending().await,
    }
}

/// A client's entry in the client registry. Dropping it removes the client.
#[derive(Debug)]
struct ConnectionGuard(Rc<Caller>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let Self(caller) = self;
        caller.services.clients.remove(&caller.client.id);
        caller.disconnect();
        caller.client.named_calls.end_streams();
        caller.client.viewings.end_all();
        caller.client.sent_rows.begin();
        caller.end_jobs();
    }
}

struct ClientCountGuard<'a>(&'a Metrics);

impl Drop for ClientCountGuard<'_> {
    fn drop(&mut self) {
        self.0.clients.subtract(1);
    }
}

/// Lets every task that is ready run once. `tokio::task::yield_now` would also ask the system for new input.
async fn let_ready_tasks_run() {
    let mut has_run = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_run, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Reads requests. Removes the client from the registry when it stops sending.
async fn read<R: AsyncRead + Unpin>(reading: R, connected: ConnectionGuard, outbox: ClientOutbox) {
    let ConnectionGuard(caller) = &connected;
    let unanswered = Unanswered::new(&caller.services.memory.requests);

    let mut lines = LineReader::new(reading, MAX_LINE_BYTES)
        .with_patience(PARTIAL_LINE_TIMEOUT)
        .with_budget(&caller.services.memory.unfinished);
    // Counted here and logged once, because a client may send any number.
    let mut bad_lines = 0_u64;

    loop {
        let parsed = match lines.next().await {
            Ok(Some(Line::Text(line))) => {
                wire::parse(&line).map(|request| request.map(|request| (request, line.len())))
            }
            Ok(Some(Line::TooLong)) => Err(wire::too_long()),
            Ok(None) => break,
            Err(error @ (LineError::Unfinished(_) | LineError::Refused(_))) => {
                if matches!(error, LineError::Refused(_)) {
                    caller.services.sessions.metrics.refused_clients.add(1);
                    tracing::warn!(%error, "client disconnected");
                }
                // The client may be gone already.
                outbox.send(wire::disconnect_notice(&error.to_string())).await.ok();
                break;
            }
            // The connection broke, so no reply is possible.
            Err(LineError::Read(_)) => break,
        };

        let sent = match parsed {
            Ok(None) => Ok(()),
            Err(reply) => {
                bad_lines += 1;
                outbox.send(reply).await
            }
            Ok(Some((request, bytes))) => {
                let concurrent = methods::is_concurrent(&request);
                match unanswered.room(bytes, concurrent).await {
                    Some(room) if concurrent => {
                        answer_later(request, room, caller, &outbox).await;
                        Ok(())
                    }
                    Some(_room) => {
                        let reply = methods::answer(request, caller).await;
                        // The replies to requests that arrived together are written together.
                        if lines.has_begun_next() {
                            outbox.send_later(reply).await
                        } else {
                            outbox.send(reply).await
                        }
                    }
                    None => outbox.send(wire::too_many_bytes(request.id.as_ref())).await,
                }
            }
        };

        if sent.is_err() {
            break;
        }
    }

    if bad_lines != 0 {
        caller.services.sessions.metrics.bad_lines.add(bad_lines);
        tracing::warn!(bad_lines, "client sent invalid lines");
    }
}

/// Starts a task that replies to a request.
async fn answer_later(
    request: ParsedRequest,
    room: RequestRoom,
    caller: &Rc<Caller>,
    outbox: &ClientOutbox,
) {
    let (caller, outbox) = (Rc::clone(caller), outbox.clone());
    actix::spawn(async move {
        let reply = methods::answer(request, &caller).await;
        if outbox.send(reply).await.is_err() {
            caller.services.sessions.metrics.unread_answers.add(1);
        }
        caller.client.replied();
        drop(room);
    });

    // Let the request start before the next line is read. An `abort` that follows a call then finds the
    // call, unless the call first had to look up its session's directory.
    let_ready_tasks_run().await;
}
