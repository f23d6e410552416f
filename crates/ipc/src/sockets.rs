//! The calls on sockets in which Linux and other systems differ: pairs, flags of messages, and questions about a socket.
//!
//! Linux sets close-on-exec and non-blocking when it makes a descriptor. macOS sets them with a second call, so a program
//! that another thread starts between the two calls inherits the descriptor. The part for macOS was compiled, but never
//! run. Used by [`crate::link`], [`crate::descriptors`] and the supervisor.

use rustix::net::{AddressFamily, SocketType, sockopt};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

pub(crate) use system::{RECEIVE, SEND, after_receiving};

/// Creates two connected sockets for a stream of bytes. Both are non-blocking and close-on-exec.
///
/// # Errors
/// The process or the system has too many descriptors.
pub fn stream_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    system::nonblocking_pair(SocketType::STREAM)
}

/// Creates two connected sockets that keep the boundaries of packets. Both are non-blocking and close-on-exec.
///
/// # Errors
/// The process or the system has too many descriptors.
pub fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    system::nonblocking_pair(system::PACKETS)
}

/// Returns true for a listening TCP socket of IPv4.
#[must_use]
pub fn is_tcp_listener(socket: impl AsFd) -> bool {
    is_internet_socket(&socket, SocketType::STREAM) && system::is_listening(&socket)
}

/// Returns true for a connection of TCP.
#[must_use]
pub fn is_tcp_connection(socket: impl AsFd) -> bool {
    let family = system::family(&socket);
    (family == Ok(AddressFamily::INET) || family == Ok(AddressFamily::INET6))
        && sockopt::socket_type(&socket) == Ok(SocketType::STREAM)
        && system::is_connection(&socket)
}

/// Returns true for a UDP socket of IPv4.
#[must_use]
pub fn is_udp_socket(socket: impl AsFd) -> bool {
    is_internet_socket(&socket, SocketType::DGRAM)
}

fn is_internet_socket(socket: &impl AsFd, kind: SocketType) -> bool {
    system::family(socket) == Ok(AddressFamily::INET) && sockopt::socket_type(socket) == Ok(kind)
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::io::Errno;
    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair, sockopt,
    };
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};

    /// A closed socket is an error and no signal.
    pub(crate) const SEND: SendFlags = SendFlags::NOSIGNAL;

    /// Received descriptors are closed in programs that this process starts.
    pub(crate) const RECEIVE: RecvFlags = RecvFlags::CMSG_CLOEXEC;

    pub(super) const PACKETS: SocketType = SocketType::SEQPACKET;

    /// [`RECEIVE`] has done everything.
    #[expect(clippy::unnecessary_wraps, reason = "other systems need a call that can fail")]
    pub(crate) fn after_receiving(_received: &[OwnedFd]) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn nonblocking_pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(socketpair(AddressFamily::UNIX, kind, flags, None)?)
    }

    pub(super) fn family(socket: &impl AsFd) -> Result<AddressFamily, Errno> {
        sockopt::socket_domain(socket)
    }

    pub(super) fn is_listening(socket: &impl AsFd) -> bool {
        sockopt::socket_acceptconn(socket) == Ok(true)
    }

    pub(super) fn is_connection(socket: &impl AsFd) -> bool {
        sockopt::socket_acceptconn(socket) == Ok(false)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, getpeername, getsockname,
        listen, socketpair,
    };
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};

    /// Connections that may wait, as in the standard library.
    const BACKLOG: i32 = 128;

    /// There is no flag against the signal of a closed socket. Rust programs ignore that signal.
    pub(crate) const SEND: SendFlags = SendFlags::empty();

    pub(crate) const RECEIVE: RecvFlags = RecvFlags::empty();

    /// macOS has no `SOCK_SEQPACKET` for Unix sockets. Datagrams also keep boundaries. They do not report that the peer
    /// has closed its end.
    pub(super) const PACKETS: SocketType = SocketType::DGRAM;

    /// Closes received descriptors in programs that this process starts.
    pub(crate) fn after_receiving(received: &[OwnedFd]) -> io::Result<()> {
        Ok(received.iter().try_for_each(|one| fcntl_setfd(one, FdFlags::CLOEXEC))?)
    }

    pub(super) fn nonblocking_pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::empty(), None)?;
        for end in [&pair.0, &pair.1] {
            fcntl_setfd(end, FdFlags::CLOEXEC)?;
            ioctl_fionbio(end, true)?;
        }
        Ok(pair)
    }

    pub(super) fn family(socket: &impl AsFd) -> Result<AddressFamily, Errno> {
        getsockname(socket).map(|address| address.address_family())
    }

    /// macOS cannot report that a socket listens. Listening again changes nothing but the backlog, and fails for a
    /// connection.
    pub(super) fn is_listening(socket: &impl AsFd) -> bool {
        listen(socket, BACKLOG).is_ok()
    }

    pub(super) fn is_connection(socket: &impl AsFd) -> bool {
        getpeername(socket).is_ok()
    }
}
