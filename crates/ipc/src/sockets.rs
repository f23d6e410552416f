//! Pairs of sockets, and questions about a socket. Used by [`crate::link`], the supervisor and the network proxy.

use crate::platform;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Creates two connected sockets for a stream of bytes. Both are non-blocking and close-on-exec.
///
/// # Errors
/// The process or the system has too many descriptors.
pub fn stream_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    platform::nonblocking_pair(SocketType::STREAM)
}

/// Creates two connected sockets that keep the boundaries of packets. Both are non-blocking and close-on-exec.
///
/// # Errors
/// The process or the system has too many descriptors.
pub fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    platform::nonblocking_pair(platform::PACKETS)
}

/// Returns true for a listening TCP socket of IPv4.
#[must_use]
pub fn is_tcp_listener(socket: impl AsFd) -> bool {
    is_internet_socket(&socket, SocketType::STREAM) && platform::is_listening(&socket)
}

/// Returns true for a connection of TCP.
#[must_use]
pub fn is_tcp_connection(socket: impl AsFd) -> bool {
    let family = platform::family(&socket);
    (family == Ok(AddressFamily::INET) || family == Ok(AddressFamily::INET6))
        && sockopt::socket_type(&socket) == Ok(SocketType::STREAM)
        && platform::is_connection(&socket)
}

/// Returns true for a UDP socket of IPv4.
#[must_use]
pub fn is_udp_socket(socket: impl AsFd) -> bool {
    is_internet_socket(&socket, SocketType::DGRAM)
}

/// Returns true for a listening stream socket of this machine.
#[must_use]
pub fn is_unix_listener(socket: impl AsFd) -> bool {
    platform::family(&socket) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(&socket) == Ok(SocketType::STREAM)
        && platform::is_listening(&socket)
}

fn is_internet_socket(socket: &impl AsFd, kind: SocketType) -> bool {
    platform::family(socket) == Ok(AddressFamily::INET) && sockopt::socket_type(socket) == Ok(kind)
}
