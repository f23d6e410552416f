//! The names of [`super`] for macOS. Compiled, not run there.

use interprocess::local_socket::ListenerOptions;
use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, getpeername, getsockname, listen,
    socketpair,
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
pub(crate) const PACKETS: SocketType = SocketType::DGRAM;

/// Sets close-on-exec on received descriptors, because macOS has no flag for it while receiving.
pub(crate) fn after_receiving(received: &[OwnedFd]) -> io::Result<()> {
    Ok(received.iter().try_for_each(|descriptor| fcntl_setfd(descriptor, FdFlags::CLOEXEC))?)
}

pub(crate) fn nonblocking_pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::empty(), None)?;
    for end in [&pair.0, &pair.1] {
        fcntl_setfd(end, FdFlags::CLOEXEC)?;
        ioctl_fionbio(end, true)?;
    }
    Ok(pair)
}

pub(crate) fn family(socket: &impl AsFd) -> Result<AddressFamily, Errno> {
    getsockname(socket).map(|address| address.address_family())
}

/// macOS cannot report that a socket listens. Listening again changes nothing but the backlog, and fails for a
/// connection.
pub(crate) fn is_listening(socket: &impl AsFd) -> bool {
    listen(socket, BACKLOG).is_ok()
}

pub(crate) fn is_connection(socket: &impl AsFd) -> bool {
    getpeername(socket).is_ok()
}

/// Changes nothing: the mode cannot be set before the bind.
pub(crate) fn private(options: ListenerOptions<'_>) -> ListenerOptions<'_> {
    options
}
