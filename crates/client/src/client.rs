//! One connection to the daemon. Used by the subcommands, one per invocation, and by the tests.

use crate::ClientError;
use crate::connection::{self, ConnectionCommand, DisconnectReason, PendingRequest, Response};
use crate::events::{self, Events};
use interprocess::local_socket::tokio::Stream;
use interprocess::local_socket::tokio::prelude::*;
use interprocess::local_socket::{GenericFilePath, ToFsName};
use quackd_protocol::client::{Method, Request};
use quackd_protocol::limits::MAX_LINE_BYTES;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

/// Requests that wait to be written. Further callers wait for a free entry, each within its own timeout.
const OUTBOX_REQUESTS: usize = 16;

/// Time between two attempts while the daemon's accept queue is full.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Connection to the daemon. Dropping it stops its task and closes the socket. Running calls
/// continue in the daemon.
#[derive(Debug)]
pub struct Client {
    commands: mpsc::Sender<ConnectionCommand>,
    closed: Arc<OnceLock<DisconnectReason>>,
    next_id: AtomicU64,
    _connection: AbortOnDropHandle<()>,
}

impl Client {
    /// Connects to the daemon that listens on `socket`, and checks that it belongs to the same user.
    ///
    /// # Errors
    /// [`ClientError::NotRunning`] without a listener, [`ClientError::ForeignServer`] if the listener belongs to
    /// another user, [`ClientError::Timeout`] if the daemon's accept queue stays full, [`ClientError::Connect`]
    /// otherwise.
    pub async fn connect(socket: &Path, limit: Duration) -> Result<Self, ClientError> {
        let stream = timeout(limit, dial(socket)).await.map_err(|_elapsed| {
            ClientError::Timeout { method: "connect".to_owned(), after: limit }
        })??;

        Ok(Self::served(|commands, closed| connection::run(stream, commands, closed)))
    }

    /// Returns the client of a daemon at the other end of a stream, such as that of a WebSocket.
    #[must_use]
    pub fn over(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        Self::served(|commands, closed| connection::run_over(reader, writer, commands, closed))
    }

    /// Starts the task of the connection.
    fn served<F: Future<Output = ()> + Send + 'static>(
        serve: impl FnOnce(mpsc::Receiver<ConnectionCommand>, Arc<OnceLock<DisconnectReason>>) -> F,
    ) -> Self {
        let (commands, commands_out) = mpsc::channel(OUTBOX_REQUESTS);
        let closed = Arc::new(OnceLock::new());
        let task = tokio::spawn(serve(commands_out, Arc::clone(&closed)));
        let connection = AbortOnDropHandle::new(task);
        Self { commands, closed, next_id: AtomicU64::new(1), _connection: connection }
    }

    /// Calls a method and waits as long as its row says. Several requests may be in flight at once. The daemon may
    /// answer them in any order.
    ///
    /// Dropping the future stops waiting, but the daemon still completes the request.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the daemon's text, [`ClientError::Timeout`] after the method's patience, and any
    /// error that closed the connection.
    pub async fn call<M: Method>(&self, params: M) -> Result<M::Reply, ClientError> {
        self.call_within(params, M::PATIENCE).await
    }

    /// Calls a method and waits at most `limit`.
    ///
    /// # Errors
    /// Like [`Client::call`].
    pub async fn call_within<M: Method>(
        &self,
        params: M,
        limit: Duration,
    ) -> Result<M::Reply, ClientError> {
        self.exchange(params, limit).await
    }

    /// Calls a method and returns its data as the daemon sent it, for data of daemons with other versions; `null`
    /// without data.
    ///
    /// # Errors
    /// Like [`Client::call`].
    pub async fn call_raw<M: Method>(&self, params: M) -> Result<Value, ClientError> {
        self.exchange::<M, Value>(params, M::PATIENCE).await
    }

    /// Returns the receiver of all events from now on. An earlier receiver gets no more. The receiver must keep
    /// reading: if about 1 MiB waits, the client stops reading from the daemon, unless a request is in flight.
    ///
    /// # Errors
    /// The error that closed the connection.
    pub async fn events(&self) -> Result<Events, ClientError> {
        let (feed, events) = events::channel();
        self.commands
            .send(ConnectionCommand::Follow(feed))
            .await
            .map_err(|_feed| self.why_closed())?;
        Ok(events)
    }

    /// Returns true if the connection has closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.commands.is_closed()
    }

    /// Returns the reason for the disconnect. Only valid after the connection has closed, for example after
    /// [`Events::recv`] returned `None`.
    #[must_use]
    pub fn why_closed(&self) -> ClientError {
        match self.closed.get() {
            Some(DisconnectReason::Refused(refusal)) => refusal.clone().into(),
            Some(DisconnectReason::Protocol(text)) => ClientError::Protocol(text.clone()),
            Some(DisconnectReason::Disconnected) | None => ClientError::Disconnected,
        }
    }

    async fn exchange<M: Method, D: DeserializeOwned>(
        &self,
        params: M,
        limit: Duration,
    ) -> Result<D, ClientError> {
        let method = M::NAME;
        // Only the number matters, so no order with other memory is needed.
        let id = self.next_id.fetch_add(1, Ordering::Relaxed).to_string();
        let mut line = serde_json::to_vec(&Request { id: &id, method, params })
            .map_err(|e| ClientError::Protocol(format!("cannot write the request: {e}")))?;
        // Refused here: the daemon could not read the id of a longer line.
        if MAX_LINE_BYTES < line.len() {
            return Err(ClientError::TooLong { bytes: line.len() });
        }
        line.push(b'\n');

        let (answer, answered) = oneshot::channel();
        let call = PendingRequest { id, line, answer };
        let response = match timeout(limit, self.send_and_wait(call, answered)).await {
            Ok(response) => response?,
            Err(_elapsed) => {
                return Err(ClientError::Timeout { method: method.to_owned(), after: limit });
            }
        };

        let data = response?;
        let text = data.as_deref().map_or("null", RawValue::get);
        serde_json::from_str(text)
            .map_err(|e| ClientError::Unexpected { method: method.to_owned(), why: e.to_string() })
    }

    async fn send_and_wait(
        &self,
        call: PendingRequest,
        answered: oneshot::Receiver<Response>,
    ) -> Result<Response, ClientError> {
        self.commands
            .send(ConnectionCommand::Call(call))
            .await
            .map_err(|_call| self.why_closed())?;
        answered.await.map_err(|_closed| self.why_closed())
    }
}

async fn dial(socket: &Path) -> Result<Stream, ClientError> {
    let failed = |source| failure(socket, source);
    loop {
        let name = socket.to_fs_name::<GenericFilePath>().map_err(failed)?;
        let stream = Stream::connect(name).await.map_err(failed)?;
        let Stream::UdSocket(inner) = &stream;

        // With a full accept queue Linux refuses a non-blocking connect with EAGAIN. interprocess treats that as
        // EINPROGRESS and returns a stream that is not connected (unix(7), connect(2)).
        match inner.inner().peer_addr() {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotConnected => {
                sleep(RETRY_INTERVAL).await;
                continue;
            }
            Err(e) => return Err(failed(e)),
        }

        // Other users may be able to write to the socket's directory. Requests must only reach our own daemon.
        let uid = inner.inner().peer_cred().map_err(failed)?.uid();
        if uid != rustix::process::geteuid().as_raw() {
            return Err(ClientError::ForeignServer { path: socket.to_owned(), uid });
        }
        return Ok(stream);
    }
}

fn failure(socket: &Path, source: io::Error) -> ClientError {
    let path = socket.to_owned();
    match source.kind() {
        // The daemon reports a file in the place of the state directory.
        io::ErrorKind::NotFound
        | io::ErrorKind::ConnectionRefused
        | io::ErrorKind::NotADirectory => ClientError::NotRunning { path },
        _ => ClientError::Connect { path, source },
    }
}
