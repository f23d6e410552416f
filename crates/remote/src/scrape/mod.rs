//! Prometheus endpoint: `GET /metrics` over HTTP on a loopback address, on a separate thread.
//!
//! Started by the supervisor if configured. The supervisor answers each [`Scrape`]. Independent of remote
//! control. The separate thread keeps parsing of network bytes off the actors' thread.
//!
//! There is no token, so every program on this machine can read the metrics. They contain only numbers, and
//! requests change nothing. Requests by web pages are refused (`handler.rs`).
//!
//! Connections, heads and times are limited, and each connection gets one reply. So a peer can occupy a slot
//! for a few seconds at most. Further connections wait in the kernel's backlog. A connection without a
//! complete head is closed if another one needs its slot.

mod handler;

#[cfg(test)]
mod tests;

pub use handler::Scrape;

use crate::accept::next_connection;
use handler::{ScrapeContext, answer};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use quackd_protocol::limits::{
    MAX_METRICS_CONNECTIONS, MAX_METRICS_HEAD_BYTES, METRICS_CONNECTION_TIMEOUT,
    METRICS_HEAD_GRACE, METRICS_HEAD_TIMEOUT,
};
use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

/// First and longest pause between attempts to listen.
const FIRST_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 1000 });
const LONGEST_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 40 } else { 60_000 });

/// Connections that wait in the kernel for a slot.
const BACKLOG: u32 = 32;

/// [`METRICS_HEAD_TIMEOUT`], [`METRICS_HEAD_GRACE`] and [`METRICS_CONNECTION_TIMEOUT`], or less in tests.
const HEAD_TIMEOUT: Duration =
    if cfg!(test) { Duration::from_millis(400) } else { METRICS_HEAD_TIMEOUT };
const HEAD_GRACE: Duration =
    if cfg!(test) { Duration::from_millis(20) } else { METRICS_HEAD_GRACE };
const CONNECTION_TIMEOUT: Duration =
    if cfg!(test) { Duration::from_millis(1500) } else { METRICS_CONNECTION_TIMEOUT };

/// State of the listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listening {
    /// No attempt yet.
    Begun,
    /// Listening on this address, with the actual port.
    At(SocketAddr),
    /// Listening failed for this reason. The thread retries.
    Refused(String),
}

/// Handle of the endpoint. Dropping it closes the port and all connections.
#[derive(Debug)]
pub struct Endpoint {
    listening: watch::Receiver<Listening>,
    _open: DropGuard,
}

impl Endpoint {
    /// Starts the thread, which listens on `address` as soon as possible. Returns the channel of its
    /// requests. Replies have the type `content_type`.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn open(
        address: SocketAddr,
        content_type: &'static str,
    ) -> io::Result<(Self, mpsc::Receiver<Scrape>)> {
        // One entry per connection, so a send never waits.
        let (scrapes, requests) = mpsc::channel(MAX_METRICS_CONNECTIONS);
        let (state, listening) = watch::channel(Listening::Begun);
        let closed = CancellationToken::new();

        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let until = closed.clone();
        std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            let serving = async move {
                let (listener, address) = listen_with_retries(address, &state).await;
                serve(listener, ScrapeContext { scrapes, content_type, port: address.port() })
                    .await;
            };
            LocalSet::new().block_on(&runtime, until.run_until_cancelled(serving));
        })?;
        Ok((Self { listening, _open: closed.drop_guard() }, requests))
    }

    /// Returns the state of the listener.
    #[must_use]
    pub fn listening(&self) -> Listening {
        self.listening.borrow().clone()
    }
}

/// Retries until listening succeeds.
async fn listen_with_retries(
    address: SocketAddr,
    state: &watch::Sender<Listening>,
) -> (TcpListener, SocketAddr) {
    let mut pause = FIRST_PAUSE;
    loop {
        match listen(address) {
            Ok((listener, at)) => {
                tracing::info!(address = %at, "metrics: listening");
                state.send_replace(Listening::At(at));
                return (listener, at);
            }
            Err(error) => {
                // Log only the first failure; `doctor` reports it as long as it lasts.
                if *state.borrow() == Listening::Begun {
                    tracing::warn!(%address, %error, "metrics: cannot listen, retrying");
                }
                state.send_replace(Listening::Refused(error.to_string()));
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Connections of the previous daemon in TIME_WAIT must not block the port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let at = listener.local_addr()?;
    Ok((listener, at))
}

/// Accepts connections while slots are free. Never returns.
async fn serve(listener: TcpListener, context: ScrapeContext) {
    let context = Rc::new(context);
    let slots = Arc::new(Semaphore::new(MAX_METRICS_CONNECTIONS));
    let mut pending = PendingHeads::default();
    loop {
        let (stream, peer) = next_connection(&listener, "metrics").await;
        // If the machine routes external packets to loopback, neighbors could connect.
        if !peer.ip().to_canonical().is_loopback() {
            tracing::debug!(%peer, "metrics: not from this machine");
            continue;
        }

        let mut free = pin!(Arc::clone(&slots).acquire_owned());
        let slot = tokio::select! {
            biased;
            slot = &mut free => slot,
            () = pending.make_room() => free.await,
        };

        // The semaphore is never closed.
        let Ok(slot) = slot else { return };

        let (context, head) = (Rc::clone(&context), pending.another());
        tokio::task::spawn_local(async move {
            connection(stream, context, head).await;
            drop(slot);
        });
    }
}

/// State of one open connection.
#[derive(Debug)]
struct PendingHead {
    since: Instant,
    /// True if the head is complete.
    is_complete: Cell<bool>,
    /// Cancelled if another connection needs the slot.
    close: CancellationToken,
}

/// Connections without a complete head, oldest first. Some may be closed.
#[derive(Debug, Default)]
struct PendingHeads(VecDeque<Weak<PendingHead>>);

impl PendingHeads {
    fn another(&mut self) -> Rc<PendingHead> {
        let (since, close) = (Instant::now(), CancellationToken::new());
        let head = Rc::new(PendingHead { since, is_complete: Cell::new(false), close });
        // Bounds the queue by the number of slots.
        self.0.retain(|other| other.upgrade().is_some_and(|other| !other.is_complete.get()));
        self.0.push_back(Rc::downgrade(&head));
        head
    }

    /// Closes the oldest connection after its grace period. Returns without action if there is none.
    async fn make_room(&mut self) {
        while let Some(oldest) = self.0.front() {
            match oldest.upgrade().filter(|oldest| !oldest.is_complete.get()) {
                Some(oldest) if oldest.since.elapsed() < HEAD_GRACE => {
                    sleep_until(oldest.since + HEAD_GRACE).await;
                }
                Some(oldest) => return oldest.close.cancel(),
                None => drop(self.0.pop_front()),
            }
        }
    }
}

/// Serves one request on a connection, within the time limit.
async fn connection(stream: TcpStream, context: Rc<ScrapeContext>, head: Rc<PendingHead>) {
    let close = head.close.clone();
    let service = service_fn(move |request| {
        head.is_complete.set(true);
        let context = Rc::clone(&context);
        async move { Ok::<_, Infallible>(answer(&request, &context).await) }
    });

    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_METRICS_HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);

    let connection = close.run_until_cancelled(connection);
    match timeout(CONNECTION_TIMEOUT, connection).await {
        Ok(Some(Ok(()))) => {}
        Ok(None) => tracing::debug!("metrics: connection closed to free its slot"),
        // Errors of the peer, such as a malformed or incomplete request. It got a reply if possible.
        Ok(Some(Err(error))) => tracing::debug!(%error, "metrics: connection ended"),
        Err(_elapsed) => tracing::debug!("metrics: connection timed out"),
    }
}
