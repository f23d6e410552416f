//! The names of [`super`] for Linux.

use interprocess::local_socket::ListenerOptions;
use interprocess::os::unix::local_socket::ListenerOptionsExt as _;
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

pub(crate) const PACKETS: SocketType = SocketType::SEQPACKET;

/// [`RECEIVE`] has done everything.
#[expect(clippy::unnecessary_wraps, reason = "other systems need a call that can fail")]
pub(crate) fn after_receiving(_received: &[OwnedFd]) -> io::Result<()> {
    Ok(())
}

pub(crate) fn nonblocking_pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(AddressFamily::UNIX, kind, flags, None)?)
}

pub(crate) fn family(socket: &impl AsFd) -> Result<AddressFamily, Errno> {
    sockopt::socket_domain(socket)
}

pub(crate) fn is_listening(socket: &impl AsFd) -> bool {
    sockopt::socket_acceptconn(socket) == Ok(true)
}

pub(crate) fn is_connection(socket: &impl AsFd) -> bool {
    sockopt::socket_acceptconn(socket) == Ok(false)
}

/// Makes the socket's file private from the beginning.
pub(crate) fn private(options: ListenerOptions<'_>) -> ListenerOptions<'_> {
    options.mode(0o600)
}
