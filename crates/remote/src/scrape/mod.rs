//! The endpoint that a Prometheus asks: `GET /metrics` over HTTP on a loopback address, on a thread of its own.
//!
//! Started by the supervisor if somebody has configured it, and answered by it as [`Scrape`]; without that
//! nothing of this exists. It has nothing to do with remote control but what they are made of, and that the
//! network's bytes stay away from the actors' thread.
//!
//! There is no token: whoever can connect may read, which is every program of this machine. So what is given is
//! numbers, and nothing can be changed here. Browsers are sent away, since a page of anybody's may ask them to
//! come (`answer.rs`).
//!
//! A peer can take a place for some seconds, and nothing else: connections, heads and times are bounded, one
//! request is answered on each, and who finds no place waits in the kernel. Who says nothing has to make room for
//! who comes.

mod answer;

#[cfg(test)]
mod tests;

use answer::{Visit, answer};
use bytes::Bytes;
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
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

/// First and longest pause before the port is tried again that cannot be listened on.
const LISTEN_PAUSE: (Duration, Duration) = if cfg!(test) {
    (Duration::from_millis(10), Duration::from_millis(40))
} else {
    (Duration::from_secs(1), Duration::from_secs(60))
};

/// The same after a failed accept, for example when descriptors are used up.
const ACCEPT_PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// Connections that the kernel keeps until there is a place for them.
const BACKLOG: u32 = 32;

/// See [`METRICS_HEAD_TIMEOUT`], [`METRICS_HEAD_GRACE`] and [`METRICS_CONNECTION_TIMEOUT`]; tests wait less.
const HEAD_TIMEOUT: Duration =
    if cfg!(test) { Duration::from_millis(400) } else { METRICS_HEAD_TIMEOUT };
const HEAD_GRACE: Duration =
    if cfg!(test) { Duration::from_millis(20) } else { METRICS_HEAD_GRACE };
const CONNECTION_TIMEOUT: Duration =
    if cfg!(test) { Duration::from_millis(1500) } else { METRICS_CONNECTION_TIMEOUT };

/// Somebody asks for the numbers. Dropped without an answer, there are none at the moment.
#[derive(Debug)]
pub struct Scrape(pub oneshot::Sender<Bytes>);

/// How it is with the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listening {
    /// It was not tried yet.
    Begun,
    /// This is listened on, with the real port.
    At(SocketAddr),
    /// It cannot be listened on, for this reason. It is tried again.
    Refused(String),
}

/// The endpoint. Dropping it closes the port and every connection.
#[derive(Debug)]
pub struct Endpoint {
    listening: watch::Receiver<Listening>,
    _open: DropGuard,
}

impl Endpoint {
    /// Starts the thread, which listens on `address` as soon as it can, and gives the questions that come. What
    /// they are answered with is of `content_type`.
    ///
    /// # Errors
    /// The system has no room for a thread.
    pub fn open(
        address: SocketAddr,
        content_type: &'static str,
    ) -> io::Result<(Self, mpsc::Receiver<Scrape>)> {
        // As many as can be asked at the same time: nobody waits for room.
        let (scrapes, asked) = mpsc::channel(MAX_METRICS_CONNECTIONS);
        let (tell, listening) = watch::channel(Listening::Begun);
        let closed = CancellationToken::new();
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let until = closed.clone();
        std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            let serving = async move {
                let (listener, address) = listen_at_last(address, &tell).await;
                serve(listener, Visit { scrapes, content_type, port: address.port() }).await;
            };
            LocalSet::new().block_on(&runtime, until.run_until_cancelled(serving));
        })?;
        Ok((Self { listening, _open: closed.drop_guard() }, asked))
    }

    /// How it is with the port now.
    #[must_use]
    pub fn listening(&self) -> Listening {
        self.listening.borrow().clone()
    }
}

/// Tries until it succeeds.
async fn listen_at_last(
    address: SocketAddr,
    tell: &watch::Sender<Listening>,
) -> (TcpListener, SocketAddr) {
    let mut pause = LISTEN_PAUSE.0;
    loop {
        match listen(address) {
            Ok((listener, at)) => {
                tracing::info!("metrics: served at http://{at}/metrics");
                tell.send_replace(Listening::At(at));
                return (listener, at);
            }
            Err(error) => {
                // Once is enough for the log; `doctor` says it as long as it is so.
                if *tell.borrow() == Listening::Begun {
                    tracing::warn!(%address, %error, "metrics: cannot listen; tried again now and then");
                }
                tell.send_replace(Listening::Refused(error.to_string()));
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LISTEN_PAUSE.1);
    }
}

fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // What is left of the connections of a daemon that has just ended is not in the way.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG)?;
    let at = listener.local_addr()?;
    Ok((listener, at))
}

/// Takes one connection after the other, as long as there is a place. Does not end.
async fn serve(listener: TcpListener, visit: Visit) {
    let visit = Rc::new(visit);
    let places = Arc::new(Semaphore::new(MAX_METRICS_CONNECTIONS));
    let mut unheard = Unheard::default();
    let mut pause = ACCEPT_PAUSE.0;
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, ?pause, "metrics: cannot accept");
                sleep(pause).await;
                pause = (pause * 2).min(ACCEPT_PAUSE.1);
                continue;
            }
        };
        pause = ACCEPT_PAUSE.0;
        // A machine that routes packets of others to its loopback would let the neighbours in.
        if !peer.ip().to_canonical().is_loopback() {
            tracing::debug!(%peer, "metrics: not from this machine");
            continue;
        }
        let mut free = pin!(Arc::clone(&places).acquire_owned());
        let place = tokio::select! {
            biased;
            place = &mut free => place,
            () = unheard.make_room() => free.await,
        };
        // Never closed.
        let Ok(place) = place else { return };
        let (visit, hearing) = (Rc::clone(&visit), unheard.another());
        tokio::task::spawn_local(async move {
            connection(stream, visit, hearing).await;
            drop(place);
        });
    }
}

/// Of one connection, as long as it lasts.
#[derive(Debug)]
struct Hearing {
    since: Instant,
    /// Its head is whole.
    is_heard: Cell<bool>,
    /// Others need its place.
    sent_away: CancellationToken,
}

/// Connections of which no whole head has come yet, the oldest first; some may have ended.
#[derive(Debug, Default)]
struct Unheard(VecDeque<Weak<Hearing>>);

impl Unheard {
    fn another(&mut self) -> Rc<Hearing> {
        let (since, sent_away) = (Instant::now(), CancellationToken::new());
        let hearing = Rc::new(Hearing { since, is_heard: Cell::new(false), sent_away });
        // No more than there are places.
        self.0.retain(|other| other.upgrade().is_some_and(|other| !other.is_heard.get()));
        self.0.push_back(Rc::downgrade(&hearing));
        hearing
    }

    /// Sends the oldest away when its time has come. Does nothing if there is none.
    async fn make_room(&mut self) {
        while let Some(oldest) = self.0.front() {
            match oldest.upgrade().filter(|oldest| !oldest.is_heard.get()) {
                Some(oldest) if oldest.since.elapsed() < HEAD_GRACE => {
                    sleep_until(oldest.since + HEAD_GRACE).await;
                }
                Some(oldest) => return oldest.sent_away.cancel(),
                None => drop(self.0.pop_front()),
            }
        }
    }
}

/// Serves one connection to its end: one request, within the bounds.
async fn connection(stream: TcpStream, visit: Rc<Visit>, hearing: Rc<Hearing>) {
    let sent_away = hearing.sent_away.clone();
    let service = service_fn(move |request| {
        hearing.is_heard.set(true);
        let visit = Rc::clone(&visit);
        async move { Ok::<_, Infallible>(answer(&request, &visit).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_METRICS_HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let connection = sent_away.run_until_cancelled(connection);
    match timeout(CONNECTION_TIMEOUT, connection).await {
        Ok(Some(Ok(()))) => {}
        Ok(None) => tracing::debug!("metrics: connection ended: others need its place"),
        // Whatever a peer sends or leaves unsaid is its own affair; it was answered if it could be.
        Ok(Some(Err(error))) => tracing::debug!(%error, "metrics: connection ended"),
        Err(_elapsed) => tracing::debug!("metrics: connection ended: it took too long"),
    }
}
