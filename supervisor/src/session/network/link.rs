//! The sockets of a worker's network namespace: receives them from the worker, which is hostile, and checks them.

use crate::platform;
use quackd_ipc::descriptors::{MAX_DESCRIPTORS, receive_with_descriptors, send_with_descriptors};
use quackd_ipc::sockets::{is_tcp_listener, is_udp_socket, is_unix_listener, packet_pair};
use quackd_protocol::network::{
    FromWorkerPacket, MAX_PACKET_BYTES, MAX_PROXY_SOCKETS, PROXY_PORT, RESOLVER_PORT, RoutedPacket,
    SocketKind,
};
use rustix::net::sockopt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Most unread packets of a pair. The send buffer of a socket holds fewer.
const MAX_UNREAD: usize = 4096;

/// The supervisor's end of the pair to a worker, and the sockets that came from it.
#[derive(Debug)]
pub(crate) struct NetworkLink {
    pair: Arc<OwnedFd>,
    kinds: Vec<SocketKind>,
    sockets: Vec<OwnedFd>,
    /// The pair for routed connections: our end and the proxy's. Connections wait in it until a proxy runs. `None` if the
    /// system had no descriptors.
    routed: Option<(OwnedFd, OwnedFd)>,
}

/// Closes the descriptors on another thread: closing one that the worker has prepared may wait.
impl Drop for NetworkLink {
    fn drop(&mut self) {
        let (pair, sockets) = (Arc::clone(&self.pair), std::mem::take(&mut self.sockets));
        let routed = self.routed.take();
        let close = move || {
            // With connections that nothing has taken out of it, and those that a proxy has sent.
            for end in routed.iter().flat_map(|(ours, theirs)| [ours, theirs]) {
                close_blocking(end, Vec::new());
            }
            close_blocking(&pair, sockets);
        };
        on_another_thread(close);
    }
}

/// A descriptor that came from another process, which may have prepared it so that closing it waits. It is closed on
/// another thread.
#[derive(Debug)]
pub(crate) struct ForeignSocket(Option<OwnedFd>);

impl ForeignSocket {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self(Some(socket))
    }

    /// `None` only while it is being closed.
    pub(crate) fn get(&self) -> Option<&OwnedFd> {
        self.0.as_ref()
    }
}

impl Drop for ForeignSocket {
    fn drop(&mut self) {
        let sockets: Vec<OwnedFd> = self.0.take().into_iter().collect();
        on_another_thread(move || {
            for socket in &sockets {
                sockopt::set_socket_linger(socket, None).ok();
            }
            drop(sockets);
        });
    }
}

/// Closes a pair to another process, with the descriptors that wait unread in it, on another thread.
pub(crate) fn close_pair_elsewhere(pair: OwnedFd) {
    on_another_thread(move || close_blocking(&pair, Vec::new()));
}

fn on_another_thread(close: impl FnOnce() + Send + 'static) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(close)),
        // The daemon has ended.
        Err(_) => close(),
    }
}

/// Closes a worker's sockets, and those that wait unread in its pair. A socket with `SO_LINGER` would wait in `close` until
/// its peer has read everything.
fn close_blocking(pair: &OwnedFd, mut sockets: Vec<OwnedFd>) {
    // Nothing more can be sent then.
    rustix::net::shutdown(pair, rustix::net::Shutdown::Both).ok();
    let mut packet = vec![0; MAX_PACKET_BYTES];
    for _ in 0..MAX_UNREAD {
        for socket in sockets.drain(..) {
            // This fails for other descriptors than sockets.
            sockopt::set_socket_linger(&socket, None).ok();
        }
        let read = receive_with_descriptors(pair, &mut packet, MAX_DESCRIPTORS, &mut sockets);
        if read.is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
            return;
        }
    }
}

/// Reason for refusing a worker's sockets.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("cannot receive the sockets of its network: {0}")]
    Receive(#[source] io::Error),
    #[error("the sockets of its network are not what was requested")]
    Unusable,
}

/// Creates a pair of connected sockets that keep the boundaries of packets: the supervisor's end and the worker's.
pub(crate) fn worker_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    packet_pair()
}

impl NetworkLink {
    /// A link without sockets, for forwards of a worker with the machine's network.
    pub(crate) fn without_sockets(pair: OwnedFd) -> Self {
        let (kinds, sockets) = (Vec::new(), Vec::new());
        Self { pair: Arc::new(pair), kinds, sockets, routed: packet_pair().ok() }
    }

    /// Receives the sockets. The worker has sent them before its hello, so this does not wait.
    pub(crate) fn receive(mut self) -> Result<Self, LinkError> {
        let mut packet = vec![0; MAX_PACKET_BYTES];
        let (pair, sockets) = (&self.pair, &mut self.sockets);
        let n = receive_with_descriptors(pair, &mut packet, MAX_PROXY_SOCKETS, sockets)
            .map_err(LinkError::Receive)?;
        let packet = serde_json::from_slice(packet.get(..n).unwrap_or_default());
        let Ok(FromWorkerPacket::Sockets(kinds)) = packet else { return Err(LinkError::Unusable) };
        self.kinds = kinds;
        let is_sound = self.kinds.len() == self.sockets.len()
            && self
                .kinds
                .iter()
                .zip(&self.sockets)
                .all(|(kind, socket)| is_socket_of(*kind, socket));
        if is_sound { Ok(self) } else { Err(LinkError::Unusable) }
    }

    /// Returns a future that ends when a connection or a query waits in one of the sockets, and never without sockets. It
    /// holds no socket, so that dropping it closes none.
    ///
    /// # Errors
    /// The kernel cannot watch the sockets.
    pub(crate) fn first_connection(
        &self,
    ) -> io::Result<impl Future<Output = io::Result<()>> + use<>> {
        platform::first_connection(&self.sockets)
    }

    /// Ports on which quackd itself listens in the network namespace of the worker. Empty without one.
    pub(crate) fn own_ports(&self) -> Vec<u16> {
        let port = |kind: &SocketKind| match kind {
            SocketKind::Proxy => Some(PROXY_PORT),
            SocketKind::ResolverTcp => Some(RESOLVER_PORT),
            SocketKind::Transparent(port) => Some(*port),
            SocketKind::ResolverUdp | SocketKind::SshAgent | SocketKind::Routed => None,
        };
        self.kinds.iter().filter_map(port).collect()
    }

    /// Duplicates for a proxy: the pair, then the sockets. And their kinds.
    pub(crate) fn for_proxy(&self) -> io::Result<(Vec<SocketKind>, Vec<OwnedFd>)> {
        let routed = self.routed.as_ref().map(|(_, theirs)| theirs);
        let all = std::iter::once(&*self.pair).chain(&self.sockets).chain(routed);
        let all = all.map(|descriptor| descriptor.as_fd().try_clone_to_owned());
        let kinds = self.kinds.iter().copied().chain(routed.map(|_| SocketKind::Routed));
        Ok((kinds.collect(), all.collect::<io::Result<_>>()?))
    }

    /// Passes a connection to a server of the session on to the proxy, which takes it when it runs.
    ///
    /// # Errors
    /// Too many connections wait, or the system has no descriptors.
    pub(crate) fn pass_on(&self, port: u16, client: &OwnedFd) -> io::Result<()> {
        let (ours, _) = self.routed.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let packet = serde_json::to_vec(&RoutedPacket { port })?;
        send_with_descriptors(ours, &packet, &[client.as_fd()]).map(drop)
    }
}

/// Whether a descriptor is a socket of this kind. A worker could pass any descriptor that it has.
fn is_socket_of(kind: SocketKind, socket: &OwnedFd) -> bool {
    match kind {
        // Port 0 means any port to the rules.
        SocketKind::Transparent(0) | SocketKind::Routed => false,
        SocketKind::ResolverUdp => is_udp_socket(socket),
        SocketKind::SshAgent => is_unix_listener(socket),
        SocketKind::Proxy | SocketKind::ResolverTcp | SocketKind::Transparent(_) => {
            is_tcp_listener(socket)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::BorrowedFd;
    use std::os::unix::net::{UnixListener, UnixStream};

    fn received(
        kinds: &[SocketKind],
        sockets: &[BorrowedFd<'_>],
    ) -> Result<NetworkLink, LinkError> {
        let (ours, theirs) = worker_pair().unwrap();
        let packet = serde_json::to_vec(&FromWorkerPacket::Sockets(kinds.to_vec())).unwrap();
        send_with_descriptors(&theirs, &packet, sockets).unwrap();
        NetworkLink::without_sockets(ours).receive()
    }

    #[test]
    fn only_the_announced_sockets_are_taken() {
        let (tcp, udp) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let file = std::fs::File::open("/dev/null").unwrap();
        let kinds = [SocketKind::Proxy, SocketKind::ResolverUdp];
        let link = received(&kinds, &[tcp.as_fd(), udp.as_fd()]).unwrap();
        let (passed, descriptors) = link.for_proxy().unwrap();
        assert_eq!(passed, [&kinds[..], &[SocketKind::Routed]].concat());
        assert_eq!((descriptors.len(), link.own_ports()), (4, vec![PROXY_PORT]));
        for sockets in [
            &[udp.as_fd(), tcp.as_fd()][..],
            &[tcp.as_fd()],
            &[tcp.as_fd(), file.as_fd()],
            &[tcp.as_fd(), udp.as_fd(), udp.as_fd()],
        ] {
            assert!(matches!(received(&kinds, sockets), Err(LinkError::Unusable)));
        }
    }

    #[test]
    fn a_worker_passes_no_pair_for_connections() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let (ours, _theirs) = worker_pair().unwrap();
        for socket in [tcp.as_fd(), ours.as_fd()] {
            let link = received(&[SocketKind::Routed], &[socket]);
            assert!(matches!(link, Err(LinkError::Unusable)));
        }
    }

    #[test]
    fn the_socket_of_an_agent_is_a_listener_of_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        let unix = UnixListener::bind(dir.path().join("agent")).unwrap();
        let (tcp, stream) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), UnixStream::pair().unwrap());
        let link = received(&[SocketKind::SshAgent], &[unix.as_fd()]).unwrap();
        assert_eq!(link.own_ports(), Vec::<u16>::new());
        for socket in [tcp.as_fd(), stream.0.as_fd()] {
            let link = received(&[SocketKind::SshAgent], &[socket]);
            assert!(matches!(link, Err(LinkError::Unusable)));
        }
        assert!(received(&[SocketKind::Proxy], &[unix.as_fd()]).is_err());
    }

    #[test]
    fn a_port_that_means_any_port_is_refused() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        for (port, is_taken) in [(0, false), (22, true)] {
            let link = received(&[SocketKind::Transparent(port)], &[tcp.as_fd()]);
            assert_eq!(link.is_ok(), is_taken, "{port}");
        }
    }

    #[test]
    fn closing_a_pair_does_not_wait_for_a_lingering_socket_in_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let full = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let unread = listener.accept().unwrap().0;
        full.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &full, &[0; 65536]).is_ok() {}
        let day = Some(std::time::Duration::from_secs(86_400));
        sockopt::set_socket_linger(&full, day).unwrap();
        let (ours, theirs) = worker_pair().unwrap();
        // An empty packet is not the end.
        send_with_descriptors(&theirs, b"", &[]).unwrap();
        for socket in [full.as_fd(), unread.as_fd(), full.as_fd()] {
            send_with_descriptors(&theirs, b"x", &[socket]).unwrap();
        }
        drop((full, unread, theirs, listener));
        let (done, closed) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(NetworkLink::without_sockets(ours));
            done.send(()).ok();
        });
        closed.recv_timeout(std::time::Duration::from_secs(45)).unwrap();
    }

    #[test]
    fn a_silent_worker_and_garbage_are_errors() {
        let (ours, _theirs) = worker_pair().unwrap();
        assert!(matches!(NetworkLink::without_sockets(ours).receive(), Err(LinkError::Receive(_))));
        let (ours, theirs) = worker_pair().unwrap();
        send_with_descriptors(&theirs, b"{", &[]).unwrap();
        assert!(matches!(NetworkLink::without_sockets(ours).receive(), Err(LinkError::Unusable)));
    }
}
