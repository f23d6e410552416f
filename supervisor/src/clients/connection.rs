//! One client: its lines in, its replies out.
//!
//! A connection is two tasks and not an actor: nobody sends it messages. What others may hold of it is
//! its [`Outbox`]. The reading task handles one line at a time; a method that waits for a worker runs in
//! a task of its own, so that a slow call delays nobody, and at most [`MAX_CLIENT_REQUESTS`] of them per
//! client. Methods that do not wait are answered in the order in which they came.
//!
//! A client that leaves does not end its calls: they run to their end or deadline. What it followed and
//! what it was as a voice client ends when it stops sending.
//!
//! The bytes may come from anywhere: the listener serves the socket, other doors a pair of pipes. A
//! request that came alone has no connection ([`answer_alone`]).

use crate::events::client_registry::{Client, Clients, Transport};
use crate::methods::{self, Caller};
use crate::metrics::Metrics;
use crate::registry::Registry;
use crate::services::Services;
use crate::wire;
use crate::wire::client_outbox::{Outbox, WriteEnd, outbox};
use actix::Addr;
use bytes::Bytes;
use quackd_ipc::lines::{Line, LineError, LineReader};
use quackd_protocol::SessionId;
use quackd_protocol::client::ToldLine;
use quackd_protocol::limits::{MAX_CLIENT_REQUESTS, MAX_LINE_BYTES, PARTIAL_LINE_TIMEOUT};
use serde::Serialize;
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

/// Where a connection comes from.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) transport: Transport,
    /// The first line for a remote client.
    pub(crate) remote_ready: Option<RemoteReady>,
}

impl Origin {
    /// The Unix socket.
    pub(crate) const SOCKET: Self = Self { transport: Transport::Socket, remote_ready: None };
}

/// What a remote client is told first, besides its own name.
#[derive(Debug)]
pub(crate) struct RemoteReady {
    /// The address at which it has come in, as it would dial it.
    pub(crate) websocket_url: String,
}

/// The event that is made of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RemoteReadyData<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    client_id: &'a str,
    websocket_url: &'a str,
}

/// What remote clients find in place of a session in their first event.
const REMOTE_SESSION: &str = "remote-control";

/// Serves one client until it leaves or the last of its replies is written. It reads and writes lines.
pub(crate) async fn serve<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    reading: R,
    writing: W,
    origin: Origin,
    services: Rc<Services>,
    registry: Addr<Registry>,
) {
    let metrics = Arc::clone(&services.sessions.metrics);
    metrics.clients.up();
    let _counted = Counted(&metrics);
    let (outbox, writing) = outbox(writing, Arc::clone(&metrics));
    let client = match Client::new(origin.transport, Some(outbox.clone())) {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(%error, "no random numbers for a client's name: it is not served");
            return;
        }
    };
    if let Some(RemoteReady { websocket_url }) = &origin.remote_ready {
        let client_id = client.id.as_str();
        let data = RemoteReadyData { kind: "remote_ready", client_id, websocket_url };
        let session_id = SessionId::from(REMOTE_SESSION);
        let ready = ToldLine { event: data.kind, session_id: &session_id, data };
        outbox.tell(wire::told(&ready)).ok();
    }
    let connected = Connected::new(Caller::new(services, registry, client));
    let reading = read(reading, connected, outbox);
    tokio::pin!(reading, writing);
    let end = tokio::select! {
        // When the client has closed its sending side, what it asked for is still written.
        () = &mut reading => writing.await,
        end = &mut writing => end,
    };
    if end == WriteEnd::Slow {
        tracing::warn!(reason = "slow_client", "client disconnected");
    }
}

/// Nobody is connected by this name.
#[derive(Debug)]
pub(crate) struct UnknownClient;

/// Answers one request that came without a connection, as HTTP requests do. `speaks_for` names a client of
/// a WebSocket in whose name it is made: no other can be spoken for. `Ok(None)` if it was blank.
pub(crate) async fn answer_alone(
    line: &[u8],
    speaks_for: Option<&str>,
    services: &Rc<Services>,
    registry: &Addr<Registry>,
) -> Result<Option<Bytes>, UnknownClient> {
    let client = match speaks_for {
        Some(id) => spoken_for(&services.clients, id)?,
        None => match Client::new(Transport::RemoteHttp, None) {
            Ok(client) => client,
            Err(error) => return Ok(Some(wire::goodbye(&error.to_string()))),
        },
    };
    let caller = Caller::new(Rc::clone(services), registry.clone(), client);
    let request = match wire::parse(line) {
        Ok(Some(request)) => request,
        Ok(None) => return Ok(None),
        Err(reply) => {
            services.sessions.metrics.bad_lines.add(1);
            return Ok(Some(reply));
        }
    };
    let reply = methods::answer(request, &caller).await;
    caller.client.replied();
    Ok(Some(reply))
}

fn spoken_for(clients: &Clients, id: &str) -> Result<Rc<Client>, UnknownClient> {
    let client = clients.get(id).filter(|client| client.transport == Transport::RemoteWs);
    client.ok_or(UnknownClient)
}

/// A client's entry in the registry of clients. Dropping it removes the client.
#[derive(Debug)]
struct Connected {
    caller: Rc<Caller>,
}

impl Connected {
    fn new(caller: Caller) -> Self {
        caller.services.clients.add(&caller.client);
        Self { caller: Rc::new(caller) }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.caller.services.clients.remove(&self.caller.client.id);
        self.caller.leave();
        self.caller.client.named_calls.end_streams();
    }
}

struct Counted<'a>(&'a Metrics);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.clients.down();
    }
}

/// Ends the client's being connected when it sends no more.
async fn read<R: AsyncRead + Unpin>(reading: R, connected: Connected, outbox: Outbox) {
    let caller = &connected.caller;
    let slots = Arc::new(Semaphore::new(MAX_CLIENT_REQUESTS));
    let mut lines = LineReader::new(reading, MAX_LINE_BYTES).with_patience(PARTIAL_LINE_TIMEOUT);
    let mut bad_lines = 0_u64;
    loop {
        let parsed = match lines.next().await {
            Ok(Some(Line::Text(line))) => wire::parse(&line),
            Ok(Some(Line::TooLong)) => Err(wire::too_long()),
            Ok(None) => break,
            Err(error @ LineError::Unfinished(_)) => {
                outbox.send(wire::goodbye(&error.to_string())).await.ok();
                break;
            }
            // The client is gone, rudely: nothing to tell it.
            Err(LineError::Read(_)) => break,
        };
        let sent = match parsed {
            Ok(None) => Ok(()),
            Err(reply) => {
                bad_lines += 1;
                outbox.send(reply).await
            }
            Ok(Some(request)) if methods::is_concurrent(&request) => {
                let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { break };
                let (caller, outbox) = (Rc::clone(caller), outbox.clone());
                actix::spawn(async move {
                    let reply = methods::answer(request, &caller).await;
                    if outbox.send(reply).await.is_err() {
                        caller.services.sessions.metrics.unread_answers.add(1);
                    }
                    caller.client.replied();
                    drop(slot);
                });
                // Its first step is taken before the next line is looked at: an `abort` that follows
                // a call finds the call, unless the call had to look for its session's directory first.
                tokio::task::yield_now().await;
                Ok(())
            }
            Ok(Some(request)) => outbox.send(methods::answer(request, caller).await).await,
        };
        if sent.is_err() {
            break;
        }
    }
    if bad_lines != 0 {
        caller.services.sessions.metrics.bad_lines.add(bad_lines);
        tracing::warn!(bad_lines, "client sent lines that are no requests");
    }
}
