//! The sockets of a worker's network namespace: receives them from the worker, which is hostile, and checks them.

use quackd_ipc::descriptors::receive_with_descriptors;
use quackd_protocol::network::{FromWorkerPacket, MAX_PACKET_BYTES, MAX_PROXY_SOCKETS, SocketKind};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The supervisor's end of the pair to a worker, and the sockets that came from it.
#[derive(Debug)]
pub(crate) struct NetworkLink {
    pair: OwnedFd,
    kinds: Vec<SocketKind>,
    sockets: Vec<OwnedFd>,
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
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

impl NetworkLink {
    /// A link without sockets, for forwards while the network is off.
    pub(crate) fn without_sockets(pair: OwnedFd) -> Self {
        Self { pair, kinds: Vec::new(), sockets: Vec::new() }
    }

    /// Receives the sockets. The worker has sent them before its hello, so this does not wait.
    pub(crate) fn receive(pair: OwnedFd) -> Result<Self, LinkError> {
        let (mut packet, mut sockets) = (vec![0; MAX_PACKET_BYTES], Vec::new());
        let n = receive_with_descriptors(&pair, &mut packet, MAX_PROXY_SOCKETS, &mut sockets)
            .map_err(LinkError::Receive)?;
        let packet = serde_json::from_slice(packet.get(..n).unwrap_or_default());
        let Ok(FromWorkerPacket::Sockets(kinds)) = packet else { return Err(LinkError::Unusable) };
        let is_sound = kinds.len() == sockets.len()
            && kinds.iter().zip(&sockets).all(|(kind, socket)| is_socket_of(*kind, socket));
        if is_sound { Ok(Self { pair, kinds, sockets }) } else { Err(LinkError::Unusable) }
    }

    /// Kinds of the sockets.
    pub(crate) fn kinds(&self) -> &[SocketKind] {
        &self.kinds
    }

    /// Duplicates for a proxy: the pair, then the sockets.
    pub(crate) fn duplicates(&self) -> io::Result<Vec<OwnedFd>> {
        let all = std::iter::once(&self.pair).chain(&self.sockets);
        all.map(|descriptor| descriptor.as_fd().try_clone_to_owned()).collect()
    }
}

/// Whether a descriptor is an Internet socket of this kind. A worker could pass any descriptor that it has.
fn is_socket_of(kind: SocketKind, socket: &OwnedFd) -> bool {
    let is_udp = kind == SocketKind::ResolverUdp;
    let wanted = if is_udp { SocketType::DGRAM } else { SocketType::STREAM };
    sockopt::socket_domain(socket) == Ok(AddressFamily::INET)
        && sockopt::socket_type(socket) == Ok(wanted)
        && (is_udp || sockopt::socket_acceptconn(socket) == Ok(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_ipc::descriptors::send_with_descriptors;
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::BorrowedFd;

    fn received(
        kinds: &[SocketKind],
        sockets: &[BorrowedFd<'_>],
    ) -> Result<NetworkLink, LinkError> {
        let (ours, theirs) = worker_pair().unwrap();
        let packet = serde_json::to_vec(&FromWorkerPacket::Sockets(kinds.to_vec())).unwrap();
        send_with_descriptors(&theirs, &packet, sockets).unwrap();
        NetworkLink::receive(ours)
    }

    #[test]
    fn only_the_announced_sockets_are_taken() {
        let (tcp, udp) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let file = std::fs::File::open("/dev/null").unwrap();
        let kinds = [SocketKind::Proxy, SocketKind::ResolverUdp];
        let link = received(&kinds, &[tcp.as_fd(), udp.as_fd()]).unwrap();
        assert_eq!((link.kinds(), link.duplicates().unwrap().len()), (&kinds[..], 3));
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
    fn a_silent_worker_and_garbage_are_errors() {
        let (ours, _theirs) = worker_pair().unwrap();
        assert!(matches!(NetworkLink::receive(ours), Err(LinkError::Receive(_))));
        let (ours, theirs) = worker_pair().unwrap();
        send_with_descriptors(&theirs, b"{", &[]).unwrap();
        assert!(matches!(NetworkLink::receive(ours), Err(LinkError::Unusable)));
    }
}
