//! The pair to the worker: notes about refused requests, and connections to servers of the session.

use quackd_ipc::descriptors::{receive_with_descriptors, send_with_descriptors};
use quackd_ipc::sockets::is_tcp_connection;
use quackd_protocol::network::{FromWorkerPacket, MAX_PACKET_BYTES, ToWorkerPacket};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Time for the worker to connect to a server of the session. A little longer than the worker's own limit.
const CONNECT_TIME: Duration = Duration::from_millis(2500);

/// Maximum number of connections that the worker is asked for at the same time.
const MAX_CONNECTING: usize = 64;

type Connecting = RefCell<HashMap<u64, oneshot::Sender<OwnedFd>>>;

/// The pair. The worker is hostile.
#[derive(Debug)]
pub(crate) struct Pair {
    socket: Rc<AsyncFd<OwnedFd>>,
    connecting: Rc<Connecting>,
    last: Cell<u64>,
}

impl Pair {
    /// Starts to read the pair.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = Rc::new(watch(socket)?);
        let connecting = Rc::<Connecting>::default();
        tokio::task::spawn_local(read_all(Rc::clone(&socket), Rc::clone(&connecting)));
        Ok(Self { socket, connecting, last: Cell::new(0) })
    }

    /// Sends a note. If the worker does not read, the note is lost: nothing may wait for a worker.
    pub(crate) fn tell(&self, packet: &ToWorkerPacket) {
        if let Ok(bytes) = serde_json::to_vec(packet)
            && bytes.len() <= MAX_PACKET_BYTES
        {
            send_with_descriptors(self.socket.get_ref(), &bytes, &[]).ok();
        }
    }

    /// Connects to a port of the session's own loopback. `None` if no server listens there.
    pub(crate) async fn connect(&self, port: u16) -> Option<TcpStream> {
        let (reply, connected) = oneshot::channel();
        let id = self.last.get() + 1;
        self.last.set(id);
        {
            let mut connecting = self.connecting.borrow_mut();
            // Entries of callers that gave up.
            connecting.retain(|_, reply| !reply.is_closed());
            if MAX_CONNECTING <= connecting.len() {
                return None;
            }
            connecting.insert(id, reply);
        }

        self.tell(&ToWorkerPacket::Connect { id, port });
        let socket = timeout(CONNECT_TIME, connected).await.ok()?.ok()?;

        let stream = std::net::TcpStream::from(socket);
        stream.set_nonblocking(true).ok()?;
        TcpStream::from_std(stream).ok()
    }
}

#[expect(
    deprecated,
    reason = "the other function is unsafe, for types that change their descriptor"
)]
pub(crate) fn watch(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    AsyncFd::with_interest(socket, Interest::READABLE)
}

/// Reads packets of the worker until the pair is closed.
async fn read_all(socket: Rc<AsyncFd<OwnedFd>>, connecting: Rc<Connecting>) {
    let mut packet = vec![0; MAX_PACKET_BYTES];
    loop {
        let Ok(mut ready) = socket.readable().await else { return };
        let mut descriptors = Vec::new();
        match receive_with_descriptors(socket.get_ref(), &mut packet, 1, &mut descriptors) {
            Ok(0) => return,
            Ok(n) => take(packet.get(..n).unwrap_or_default(), descriptors, &connecting),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_broken) => return,
        }

        // A flood of packets does not keep other tasks from running.
        tokio::task::yield_now().await;
    }
}

fn take(packet: &[u8], descriptors: Vec<OwnedFd>, connecting: &Connecting) {
    match serde_json::from_slice(packet) {
        Ok(FromWorkerPacket::Connected { id }) => {
            let reply = connecting.borrow_mut().remove(&id);
            // A worker could pass any descriptor that it has.
            let socket = descriptors.into_iter().next().filter(|socket| is_tcp_connection(socket));
            if let (Some(reply), Some(socket)) = (reply, socket) {
                // The caller may have given up.
                reply.send(socket).ok();
            }
        }
        Ok(FromWorkerPacket::NotConnected { id }) => drop(connecting.borrow_mut().remove(&id)),
        Ok(FromWorkerPacket::Sockets(_)) | Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_ipc::sockets::packet_pair;
    use std::os::fd::{AsFd, BorrowedFd};
    use tokio::task::LocalSet;

    #[tokio::test]
    async fn forged_packets_connect_nothing_and_a_true_one_still_does() {
        let test = async {
            let (ours, worker) = packet_pair().unwrap();
            let pair = Pair::new(ours).unwrap();
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let file = std::fs::File::open("/dev/null").unwrap();
            let mut buffer = [0; MAX_PACKET_BYTES];
            let send = async |bytes: &[u8], sockets: &[BorrowedFd<'_>]| {
                // The proxy reads while the buffer is full.
                while let Err(error) = send_with_descriptors(&worker, bytes, sockets) {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    tokio::task::yield_now().await;
                }
            };
            let connected =
                |id: u64| serde_json::to_vec(&FromWorkerPacket::Connected { id }).unwrap();
            for (socket, is_taken) in [
                (file.as_fd(), false),
                (listener.as_fd(), false),
                (udp.as_fd(), false),
                (worker.as_fd(), false),
                (stream.as_fd(), true),
            ] {
                let answering = async {
                    let mut none = Vec::new();
                    let id = loop {
                        match receive_with_descriptors(&worker, &mut buffer, 0, &mut none) {
                            Ok(n) => match serde_json::from_slice(&buffer[..n]).unwrap() {
                                ToWorkerPacket::Connect { id, port: 3000 } => break id,
                                other => panic!("{other:?}"),
                            },
                            Err(_empty) => tokio::task::yield_now().await,
                        }
                    };
                    for n in 0..1000 {
                        send(b"{", &[]).await;
                        send(&connected(id + 1 + n), &[stream.as_fd(), file.as_fd()]).await;
                    }
                    let sockets = FromWorkerPacket::Sockets(Vec::new());
                    send(&serde_json::to_vec(&sockets).unwrap(), &[stream.as_fd()]).await;
                    send(&[b'x'; MAX_PACKET_BYTES], &[]).await;
                    send(&connected(id), &[socket]).await;
                };
                let (connection, ()) = tokio::join!(pair.connect(3000), answering);
                assert_eq!(connection.is_some(), is_taken, "{socket:?}");
            }
        };
        LocalSet::new().run_until(test).await;
    }
}
