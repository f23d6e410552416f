//! Enables the loopback of a new network namespace, and adds a route to it, by messages to the kernel's routing socket
//! (rtnetlink(7)). Called by `enter`.

use super::error::{ConfineError, StepContext};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use std::io;

/// Index of the loopback. It is always the first device of a namespace.
const LOOPBACK: i32 = 1;

const RTM_NEWLINK: u16 = 16;
const RTM_NEWROUTE: u16 = 24;
const NLM_F_REQUEST_ACK: u16 = 5;
const NLM_F_CREATE: u16 = 0x400;
const RT_TABLE_LOCAL: u8 = 255;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_HOST: u8 = 254;
const RTN_LOCAL: u8 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const AF_INET: u8 = 2;
const NLMSG_ERROR: u16 = 2;
const IFF_UP: u32 = 1;

/// Length of the message header and of the device record (`rtnetlink(7)`).
const MESSAGE: u32 = 16 + 16;

/// Enables the loopback. The kernel then adds `127.0.0.1` and `::1`.
pub(crate) fn bring_up() -> Result<(), ConfineError> {
    switch_on().step("switch the loopback on")
}

/// Makes all addresses of 198.18.0.0/15 local. A proxy outside gives each allowed name one of them.
pub(crate) fn add_synthetic_addresses() -> Result<(), ConfineError> {
    request(&route()).step("add a route to the loopback")
}

fn switch_on() -> io::Result<()> {
    request(&message())
}

/// Sends a message and waits for its acknowledgement.
fn request(message: &[u8]) -> io::Result<()> {
    let family = AddressFamily::NETLINK;
    // `None` means protocol number 0, which is NETLINK_ROUTE.
    let socket = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, message, SendFlags::empty())?;

    let mut answer = [0_u8; 256];
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    match error_of(answer.get(..length).unwrap_or_default()) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        None => Err(io::Error::other("the kernel's answer is not understood")),
    }
}

fn message() -> Vec<u8> {
    let mut message = Vec::new();
    message.extend(MESSAGE.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST_ACK.to_ne_bytes());
    // Sequence number and sender. Zero is enough, because this socket has one user.
    message.extend([0; 8]);
    // Family, padding, kind of device.
    message.extend([0; 4]);
    message.extend(LOOPBACK.to_ne_bytes());
    // The flag and the mask of flags to change.
    message.extend(IFF_UP.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    message
}

/// The message that adds the route: header, route record, destination and device.
fn route() -> Vec<u8> {
    let mut message = Vec::new();
    message.extend((16 + 12 + 8 + 8_u32).to_ne_bytes());
    message.extend(RTM_NEWROUTE.to_ne_bytes());
    message.extend((NLM_F_REQUEST_ACK | NLM_F_CREATE).to_ne_bytes());
    message.extend([0; 8]);
    // Family, lengths of the destination and the source, type of service, table, origin, scope and kind of the route.
    message.extend([AF_INET, 15, 0, 0, RT_TABLE_LOCAL, RTPROT_STATIC, RT_SCOPE_HOST, RTN_LOCAL]);
    message.extend([0; 4]);

    message.extend(8_u16.to_ne_bytes());
    message.extend(RTA_DST.to_ne_bytes());
    message.extend([198, 18, 0, 0]);
    message.extend(8_u16.to_ne_bytes());
    message.extend(RTA_OIF.to_ne_bytes());
    message.extend(LOOPBACK.to_ne_bytes());
    message
}

/// Returns the error number in an acknowledgement, 0 for success.
fn error_of(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != NLMSG_ERROR {
        return None;
    }
    Some(i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?))
}
