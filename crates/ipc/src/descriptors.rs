//! Descriptors that travel with bytes over a Unix socket (`SCM_RIGHTS`, unix(7)).

use crate::platform::{RECEIVE, SEND, after_receiving};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer, SendAncillaryMessage, recvmsg,
    sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum number of descriptors of one message.
pub const MAX_DESCRIPTORS: usize = 32;

/// Sends bytes with descriptors. Returns the number of bytes that the socket took; the descriptors went with them.
///
/// # Errors
/// There are more than [`MAX_DESCRIPTORS`], or the socket is full (`WouldBlock`) or closed.
pub fn send_with_descriptors(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);

    let fits = descriptors.len() <= MAX_DESCRIPTORS
        && (descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors)));
    if !fits {
        return Err(Errno::NOBUFS.into());
    }

    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SEND)?)
}

/// Receives bytes, and appends the descriptors that came with them to `descriptors`. Closes those beyond
/// `max_descriptors` in all. Returns the number of bytes, 0 at the end.
///
/// # Errors
/// Nothing has arrived (`WouldBlock`), or the socket is broken.
pub fn receive_with_descriptors(
    socket: impl AsFd,
    bytes: &mut [u8],
    max_descriptors: usize,
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RECEIVE)?;

    let n_before = descriptors.len();
    for ancillary in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = ancillary {
            let room = max_descriptors.saturating_sub(descriptors.len());
            descriptors.extend(received.take(room));
        }
    }

    // Some systems cannot set the flag of the descriptors while receiving.
    after_receiving(descriptors.get(n_before..).unwrap_or_default())?;
    Ok(message.bytes)
}
