//! Remote control: HTTP, WebSocket and TLS for remote clients, on a separate thread.
//!
//! Owns the port, its connections and the token checks. Called by the supervisor, which configures it with
//! [`Remote::apply`] and handles each [`Ask`]. This crate has no sessions and no actors. A WebSocket becomes
//! a stream of lines, like a client of the socket. `POST /rpc` becomes one request and one reply.
//!
//! Only this thread parses bytes from the network, with hyper, rustls and tungstenite. The actors' thread
//! gets lines of a bounded length, as from local clients. Token checks do not block the actors either: see
//! [`gate`].
//!
//! **Why hyper and not a framework.** There are seven routes, and their order of checks is upstream's:
//! `OPTIONS`, `/health`, files, `/token`, the token, the other routes. That is one function. A router would add a dozen
//! crates and still need the function. hyper limits heads in size and time. HTTP/1.1 only: no supported
//! client uses HTTP/2.
//!
//! The thread starts when remote control is enabled for the first time.
//!
//! [`scrape`] is the separate endpoint for Prometheus. It shares only these libraries.

pub mod gate;
pub mod scrape;

mod accept;
mod ask;
mod assets;
mod attempt_limiter;
mod bridge;
mod connection;
mod handshake;
mod history;
mod host_header;
mod pages;
mod reply;
mod routes;
mod rpc;
mod server;
mod settings;
mod sign_in;
mod state;
mod thread;
mod tls;
mod write_timeout;

#[cfg(test)]
mod tests;

pub use ask::{ApplyError, Ask, CodeAnswer, RpcAnswer};
pub use gate::TokenHash;
pub use pages::{Page, PageSecret, PageToken, PageTokenHash, Pages};
pub use settings::{Settings, TlsPaths, urls};
pub use tls::TlsError;
pub use write_timeout::WriteTimeoutStream;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::{OnceCell, mpsc, oneshot, watch};

/// Handle of remote control. The daemon has one. Dropping it closes the port and all connections.
#[derive(Debug)]
pub struct Remote {
    asks: mpsc::Sender<Ask>,
    connected: Arc<AtomicUsize>,
    is_token_short: Arc<AtomicBool>,
    pages: watch::Sender<Pages>,
    commands: OnceCell<mpsc::Sender<thread::ServerCommand>>,
}

impl Remote {
    /// Creates a handle without a listener, and the channel of its requests. Starts nothing.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Ask>) {
        // Each sender waits in its own task while the queue is full.
        let (asks, requests) = mpsc::channel(64);
        let (connected, is_token_short) = (Arc::default(), Arc::default());
        let (pages, commands) = (watch::Sender::default(), OnceCell::new());
        (Self { asks, connected, is_token_short, pages, commands }, requests)
    }

    /// Starts listening with these settings, or applies them to the open listener. Returns the port.
    ///
    /// Connected clients stay if possible. A new token disconnects the clients that used the old one. A new
    /// address or certificate path disconnects all clients.
    ///
    /// # Errors
    /// The settings are not usable. The old listener stays open if possible; see [`Remote::port`].
    pub async fn apply(&self, settings: Settings) -> Result<u16, ApplyError> {
        let start = || async {
            let (connected, is_short) = (&self.connected, &self.is_token_short);
            let pages = self.pages.subscribe();
            thread::start(self.asks.clone(), Arc::clone(connected), Arc::clone(is_short), pages)
        };
        let commands = self.commands.get_or_try_init(start).await?;

        let (answer, answered) = oneshot::channel();
        let command = thread::ServerCommand::Apply { settings: Box::new(settings), answer };
        commands.send(command).await.map_err(|_gone| ApplyError::Ended)?;
        answered.await.unwrap_or(Err(ApplyError::Ended))
    }

    /// Replaces the valid page tokens. WebSockets with another page token are closed.
    pub fn set_pages(&self, pages: Pages) {
        self.pages.send_replace(pages);
    }

    /// Returns the listening port; `None` if closed.
    pub async fn port(&self) -> Option<u16> {
        let (answer, answered) = oneshot::channel();
        self.commands.get()?.send(thread::ServerCommand::Port(answer)).await.ok()?;
        answered.await.ok()?
    }

    /// Stops listening and closes all connections. Waits at most 500 ms for clients to receive the close
    /// frame.
    pub async fn close(&self) {
        let Some(commands) = self.commands.get() else { return };
        let (answer, answered) = oneshot::channel();
        if commands.send(thread::ServerCommand::Close(answer)).await.is_ok() {
            // An error means that the thread has already stopped.
            answered.await.ok();
        }
    }

    /// Returns the number of clients with an open WebSocket.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }

    /// Returns true if the token is shorter than a new one must be. False while only its hash is known.
    #[must_use]
    pub fn is_token_short(&self) -> bool {
        self.is_token_short.load(Ordering::Relaxed)
    }
}
