//! The router: leads connections for `PORT.NAME.localhost` to servers of sessions. One process for all sessions.
//!
//! It accepts, looks at the head of the first request without taking it out of the socket, and passes the unread
//! connection to the supervisor with the name and the port. The supervisor knows the sessions; this process answers
//! connections that it refuses. A passed connection belongs to one session until it ends.

use crate::channel::{Channel, send};
use crate::pair::watch;
use crate::reply::answer;
use futures_util::StreamExt;
use quackd_ipc::descriptors::{receive_with_descriptors, send_with_descriptors};
use quackd_ipc::frames::{self, Decoded};
use quackd_ipc::link::adopt;
use quackd_network::http::MAX_HEAD;
use quackd_network::link::{self, LinkRefusal, LinkTarget};
use quackd_protocol::network::{
    FromProxy, MAX_PACKET_BYTES, MAX_ROUTED, PROXY_PROTOCOL, ROUTE_HEAD_TIME, RouteAnswer,
    RouteAsk, RouteRefusal, TO_PROXY_TAGS, ToProxy,
};
use rustix::net::{RecvFlags, recv};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};
use tokio_util::codec::Framed;

/// Time for the supervisor to pass a connection on.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Pause after a failed `accept`.
const PAUSE: Duration = Duration::from_millis(100);

/// Input of the runtime.
pub(crate) struct Started {
    pub(crate) control: OwnedFd,
    /// The pair to the supervisor.
    pub(crate) pair: OwnedFd,
    pub(crate) listener: OwnedFd,
    pub(crate) notes: Vec<String>,
}

/// Connections that the supervisor has, by the ids of their requests.
type Pending = RefCell<HashMap<u64, oneshot::Sender<Result<(), RouteRefusal>>>>;

/// State of the router. On one thread.
struct Router {
    pair: AsyncFd<OwnedFd>,
    pending: Pending,
    last: Cell<u64>,
    /// Port of the listener.
    port: u16,
}

/// Reason why quackd itself answers a connection.
enum Refusal {
    /// Closed before the end of the head: nothing is answered.
    Gone,
    Slow,
    Head(LinkRefusal),
    Route(RouteRefusal),
    NoAnswer,
}

/// Serves until the supervisor closes the channel or asks the router to exit.
pub(crate) async fn serve(started: Started) -> io::Result<()> {
    let Started { control, pair, listener, notes } = started;
    let mut channel: Channel = Framed::new(adopt(control)?, frames::codec());
    rustix::io::ioctl_fionbio(&listener, true)?;
    let listener = TcpListener::from_std(listener.into())?;
    let port = listener.local_addr()?.port();

    let (pending, last) = (Pending::default(), Cell::new(0));
    let router = Rc::new(Router { pair: watch(pair)?, pending, last, port });

    send(&mut channel, &FromProxy::Hello { proto: PROXY_PROTOCOL, notes }).await?;
    tokio::task::spawn_local(accept(listener, Rc::clone(&router)));

    let reading = router.read_answers();
    tokio::pin!(reading);
    loop {
        let body = tokio::select! {
            body = channel.next() => body,
            ended = &mut reading => return ended,
        };

        let Some(body) = body else { return Ok(()) };
        match frames::decode(&body?, TO_PROXY_TAGS).map_err(io::Error::other)? {
            Decoded::Known(ToProxy::Ping { seq }) => {
                send(&mut channel, &FromProxy::Pong { seq }).await?;
            }
            Decoded::Known(ToProxy::Shutdown {}) => return Ok(()),
            Decoded::Known(_) => return Err(io::Error::other("a frame for a proxy")),
            Decoded::Unknown(_) => {}
        }
    }
}

async fn accept(listener: TcpListener, router: Rc<Router>) {
    let slots = Arc::new(Semaphore::new(MAX_ROUTED));
    loop {
        // The semaphore is never closed.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };

        let Ok((client, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };

        let router = Rc::clone(&router);
        tokio::task::spawn_local(async move {
            if let Err(refusal) = router.route(&client).await {
                refuse(client, refusal, router.port).await;
            }
            drop(slot);
        });
    }
}

impl Router {
    /// Passes a connection on. The caller drops its own handle of it, or answers the refusal.
    async fn route(&self, client: &TcpStream) -> Result<(), Refusal> {
        let reading = timeout(ROUTE_HEAD_TIME, read_target(client, self.port));
        let LinkTarget { port, name } = reading.await.map_err(|_elapsed| Refusal::Slow)??;

        let id = self.last.get() + 1;
        self.last.set(id);
        let (reply, answered) = oneshot::channel();
        self.pending.borrow_mut().insert(id, reply);

        let result = match self.ask(&RouteAsk { id, name, port }, client) {
            Ok(()) => timeout(ANSWER_TIME, answered).await,
            // The supervisor has not taken the earlier ones.
            Err(_full) => Ok(Ok(Err(RouteRefusal::Busy))),
        };
        self.pending.borrow_mut().remove(&id);

        match result {
            Ok(Ok(result)) => result.map_err(Refusal::Route),
            Ok(Err(_)) | Err(_) => Err(Refusal::NoAnswer),
        }
    }

    fn ask(&self, ask: &RouteAsk, client: &TcpStream) -> io::Result<()> {
        let packet = serde_json::to_vec(ask)?;
        send_with_descriptors(self.pair.get_ref(), &packet, &[client.as_fd()]).map(drop)
    }

    /// Reads answers until the supervisor closes the pair.
    async fn read_answers(&self) -> io::Result<()> {
        let mut packet = vec![0; MAX_PACKET_BYTES];
        loop {
            let mut ready = self.pair.readable().await?;
            let mut none = Vec::new();

            match receive_with_descriptors(self.pair.get_ref(), &mut packet, 0, &mut none) {
                Ok(0) => return Ok(()),
                Ok(n) => {
                    let read = packet.get(..n).unwrap_or_default();
                    let RouteAnswer { id, result } = serde_json::from_slice(read)?;
                    if let Some(reply) = self.pending.borrow_mut().remove(&id) {
                        // The connection may have waited for too long.
                        reply.send(result).ok();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Reads the target of the first request, and leaves all bytes in the socket.
async fn read_target(client: &TcpStream, own_port: u16) -> Result<LinkTarget, Refusal> {
    let mut head = vec![0; MAX_HEAD];
    let mut n_seen = 0;
    loop {
        let ready = client.ready(Interest::READABLE).await.map_err(|_broken| Refusal::Gone)?;
        let peeked = client.try_io(Interest::READABLE, || {
            let (_, n) = recv(client, &mut head[..], RecvFlags::PEEK)?;
            // The socket stays readable while it has bytes. This waits for more of them.
            let has_more = n_seen < n || ready.is_read_closed();
            has_more.then_some(n).ok_or_else(|| io::ErrorKind::WouldBlock.into())
        });

        match peeked {
            Ok(n) if n <= n_seen => return Err(Refusal::Gone),
            Ok(n) => n_seen = n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_broken) => return Err(Refusal::Gone),
        }

        let seen = head.get(..n_seen).unwrap_or_default();
        if let Some(target) = link::target(seen, own_port).map_err(Refusal::Head)? {
            return Ok(target);
        }
    }
}

/// Whether no byte has arrived.
fn is_silent(client: &TcpStream) -> bool {
    recv(client, &mut [0; 1][..], RecvFlags::PEEK).is_err()
}

/// Answers a refused connection. No text names a session that the request has not named.
async fn refuse(client: TcpStream, refusal: Refusal, own_port: u16) {
    let form = format!("the address has the form http://PORT.SESSION.localhost:{own_port}/");

    let (status, text) = match refusal {
        // The supervisor may still pass a connection on that it has got too late: its bytes are not for this process.
        Refusal::Gone | Refusal::NoAnswer => return,
        // A connection that a browser has opened in advance is closed without a word.
        Refusal::Slow if is_silent(&client) => return,
        Refusal::Slow => ("408 Request Timeout", "the head of the request took too long".to_owned()),
        Refusal::Head(LinkRefusal::Malformed) => {
            ("400 Bad Request", format!("not a request of HTTP/1.1 with one Host; {form}"))
        }
        Refusal::Head(LinkRefusal::TooLong) => {
            ("431 Request Header Fields Too Large", format!("the head is longer than {MAX_HEAD} bytes"))
        }
        Refusal::Head(LinkRefusal::OtherHost) => {
            ("421 Misdirected Request", format!("no link of a session; {form}"))
        }
        Refusal::Head(LinkRefusal::OwnPort) => {
            ("400 Bad Request", format!("port {own_port} is the one of all links; {form}"))
        }
        Refusal::Route(RouteRefusal::NoSession) => (
            "404 Not Found",
            "no session has this name. `quack ps` lists links, `quack forward SESSION PORT --link` prints one".to_owned(),
        ),
        Refusal::Route(RouteRefusal::Ambiguous) => (
            "404 Not Found",
            "several sessions have this name. `quack forward SESSION PORT --link` prints a link with the id".to_owned(),
        ),
        Refusal::Route(RouteRefusal::NoWorker) => (
            "502 Bad Gateway",
            "the session has no running worker, so no server: start the server in the session".to_owned(),
        ),
        Refusal::Route(RouteRefusal::Busy) => {
            ("503 Service Unavailable", "too many connections wait: try again".to_owned())
        }
    };

    // The client may be gone.
    let _sent = answer(client, status, "", &format!("quackd: {text}\n")).await;
}
