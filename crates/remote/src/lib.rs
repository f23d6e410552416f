//! Remote control: HTTP, WebSocket and TLS in front of the daemon, on a thread of its own.
//!
//! Owns: the port, the connections to it, who may come in, and everything that a peer can get wrong. Called
//! by the supervisor, which configures it with [`Remote::apply`] and answers what comes through as [`Ask`].
//! Nothing here knows a session or an actor: a WebSocket becomes a stream of lines, as a client of the
//! socket is one, and `POST /rpc` one request and one reply.
//!
//! The network's bytes meet hyper, rustls and tungstenite here and nowhere else in the daemon; the actors'
//! thread sees lines of a bounded length, as from any client. Looking at a token costs the actors nothing
//! either: see [`gate`].
//!
//! **Why hyper and not a framework.** There are six routes, and the order of the tests on them is
//! upstream's (`OPTIONS`, `/health`, files, then the token, then the rest). That is one function; a router
//! would come with a dozen crates and still need it. hyper bounds heads in size and time, hyper-util fits
//! it to tokio, tokio-rustls and tokio-tungstenite are what their communities use. HTTP/1.1 only: no
//! client of ours speaks HTTP/2 without TLS, and none asks for it with.
//!
//! Nothing of this exists before remote control is enabled for the first time.
//!
//! Beside it lives [`scrape`], which gives numbers to a Prometheus and shares nothing with it but these libraries.

pub mod gate;
pub mod scrape;

mod advertise;
mod assets;
mod bridge;
mod connection;
mod history;
mod limiter;
mod patient;
mod reply;
mod routes;
mod rpc;
mod server;
mod settings;
mod thread;
mod tls;

#[cfg(test)]
mod tests;

pub use gate::TokenHash;
pub use settings::{Settings, TlsPaths, urls};
pub use tls::TlsError;

use bytes::Bytes;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::DuplexStream;
use tokio::sync::{OnceCell, mpsc, oneshot};

/// Commands that wait for the thread; each is waited for by who sent it.
const MAX_COMMANDS: usize = 8;

/// What a remote client wants of the daemon.
#[derive(Debug)]
pub enum Ask {
    /// One request, and one reply.
    Rpc {
        /// The request's JSON.
        body: Bytes,
        /// In whose name, as `X-Rubber-Duck-Client-Id` says.
        client: Option<String>,
        /// Where the answer goes. Closed by a client that went away.
        answer: oneshot::Sender<RpcAnswer>,
    },
    /// A client with a WebSocket, as one that reads and writes lines.
    WebSocket {
        /// What it says and is told.
        lines: DuplexStream,
        /// Where it has connected to, as it named the host.
        url: String,
    },
}

/// The daemon's answer to [`Ask::Rpc`].
#[derive(Debug)]
pub enum RpcAnswer {
    /// The reply as one line of JSON.
    Reply(Bytes),
    /// No remote client has this id.
    UnknownClient,
}

/// Why settings were not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The certificate or its key.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Host and port.
        address: String,
        /// The system's refusal.
        source: io::Error,
    },
    /// The thread cannot be started.
    #[error("cannot start the thread of remote control: {0}")]
    Thread(#[from] io::Error),
    /// The daemon is going down.
    #[error("the daemon is going down")]
    Ended,
}

/// The door. One for the whole daemon. Dropping it closes everything at once.
#[derive(Debug)]
pub struct Remote {
    asks: mpsc::Sender<Ask>,
    connected: Arc<AtomicUsize>,
    is_token_short: Arc<AtomicBool>,
    commands: OnceCell<mpsc::Sender<thread::Command>>,
}

impl Remote {
    /// A door that is closed, and the questions that will come through it. Nothing is started.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Ask>) {
        // Each waits in a task of its own; a full queue makes them wait before it.
        let (asks, asked) = mpsc::channel(64);
        let (connected, is_token_short) = (Arc::default(), Arc::default());
        (Self { asks, connected, is_token_short, commands: OnceCell::new() }, asked)
    }

    /// Opens the door with these settings, or changes those that it has, and gives the port.
    ///
    /// Clients stay as far as that makes sense: those who came with a token that is no longer the one are
    /// sent away, and everybody is if the address or the certificate's path has changed.
    ///
    /// # Errors
    /// The settings cannot be used. What was there before is there still, see [`Remote::port`].
    pub async fn apply(&self, settings: Settings) -> Result<u16, ApplyError> {
        let start = || async {
            let (connected, is_short) = (&self.connected, &self.is_token_short);
            thread::start(self.asks.clone(), Arc::clone(connected), Arc::clone(is_short))
        };
        let commands = self.commands.get_or_try_init(start).await?;
        let (answer, answered) = oneshot::channel();
        let command = thread::Command::Apply { settings: Box::new(settings), answer };
        commands.send(command).await.map_err(|_gone| ApplyError::Ended)?;
        answered.await.unwrap_or(Err(ApplyError::Ended))
    }

    /// The port it listens on; `None` if it does not.
    pub async fn port(&self) -> Option<u16> {
        let (answer, answered) = oneshot::channel();
        self.commands.get()?.send(thread::Command::Port(answer)).await.ok()?;
        answered.await.ok()?
    }

    /// Closes the door: nobody is listened to after this. Clients are told so on their way out, which is
    /// waited for only a moment.
    pub async fn close(&self) {
        let Some(commands) = self.commands.get() else { return };
        let (answer, answered) = oneshot::channel();
        if commands.send(thread::Command::Close(answer)).await.is_ok() {
            // No answer: the thread has ended, and everything with it.
            answered.await.ok();
        }
    }

    /// Clients with an open WebSocket.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }

    /// Whether the token has fewer characters than a new one must have. False while only its hash is known.
    #[must_use]
    pub fn is_token_short(&self) -> bool {
        self.is_token_short.load(Ordering::Relaxed)
    }
}
