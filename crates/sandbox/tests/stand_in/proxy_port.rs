//! Ports of 127.0.0.1 in a network namespace that lead to the same ports outside. The process outside of the namespace
//! waits for the program, and passes its connections on.

use nix::unistd::{ForkResult, fork};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socket_with,
    socketpair,
};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_parent_process_death_signal, waitpid,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Most ports.
const MAX_PORTS: usize = 4;

/// Index of the loopback, which is always the first device of a namespace.
const LOOPBACK: i32 = 1;

/// The program's end.
pub(super) struct Listening<'a> {
    ports: &'a [u16],
    outside: OwnedFd,
}

impl Listening<'_> {
    /// Listens in the network namespace of this process.
    ///
    /// # Errors
    /// The loopback cannot be started, or a port is taken.
    pub(super) fn start(&self) -> Result<(), String> {
        start_loopback().map_err(|error| format!("start the loopback: {error}"))?;
        for port in self.ports {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, *port));
            listener
                .and_then(|listener| send(&self.outside, &listener))
                .map_err(|error| format!("port {port}: {error}"))?;
        }
        Ok(())
    }
}

/// Runs `program` in a child, and passes on connections to the ports until it ends. Returns its exit code.
///
/// # Errors
/// A process or a socket cannot be made. Errors of `program` are returned in the child.
#[expect(unsafe_code, reason = "fork(2) has no safe form")]
pub(super) fn serve(
    ports: &[u16],
    program: impl FnOnce(Listening<'_>) -> Result<u8, String>,
) -> Result<u8, String> {
    if MAX_PORTS < ports.len() {
        return Err("too many ports".to_owned());
    }
    let (inside, outside) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|error| format!("make a pair: {error}"))?;
    // SAFETY: this process has one thread, so no lock can be held by a thread that the child lacks.
    match unsafe { fork() }.map_err(|error| format!("fork: {error}"))? {
        ForkResult::Child => {
            drop(inside);
            set_parent_process_death_signal(Some(Signal::KILL))
                .map_err(|error| format!("follow the parent: {error}"))?;
            program(Listening { ports, outside })
        }
        ForkResult::Parent { child } => {
            drop(outside);
            for port in ports {
                // Nothing arrives if the child has failed: it reports why.
                if let Some(listener) = receive(&inside) {
                    let port = *port;
                    std::thread::spawn(move || pass_on(&TcpListener::from(listener), port));
                }
            }
            wait_for(child.as_raw()).map_err(|error| format!("wait: {error}"))
        }
    }
}

/// Waits for the child. Returns its exit code, and ends like it if a signal ended it.
fn wait_for(child: i32) -> io::Result<u8> {
    let Some((_, status)) = waitpid(Pid::from_raw(child), WaitOptions::empty())? else {
        return Err(io::Error::other("no status"));
    };
    if let Some(signal) = status.terminating_signal().and_then(Signal::from_named_raw) {
        kill_process(getpid(), signal)?;
    }
    let code = status.exit_status().and_then(|code| u8::try_from(code).ok());
    Ok(code.unwrap_or(u8::MAX))
}

/// Passes each connection on to the same port of this process's network.
fn pass_on(listener: &TcpListener, port: u16) {
    for stream in listener.incoming().flatten() {
        let Ok(beyond) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
        for (from, to) in [(&stream, &beyond), (&beyond, &stream)] {
            let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { continue };
            std::thread::spawn(move || {
                // The other direction ends by itself.
                match io::copy(&mut from, &mut to) {
                    Ok(_) => drop(to.shutdown(Shutdown::Write)),
                    Err(_) => pass_on_reset([&from, &to]),
                }
            });
        }
    }
}

/// Lets the last close of each stream reset its connection, and ends the other direction.
fn pass_on_reset(streams: [&TcpStream; 2]) {
    for stream in streams {
        set_socket_linger(stream, Some(Duration::ZERO)).ok();
        drop(stream.shutdown(Shutdown::Read));
    }
}

fn send(to: &OwnedFd, listener: &TcpListener) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [listener.as_fd()];
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no space"));
    }
    sendmsg(to, &[IoSlice::new(b"p")], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

fn receive(from: &OwnedFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        .ok()?;
    ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

/// Enables the loopback by a message to the routing socket (rtnetlink(7)).
fn start_loopback() -> io::Result<()> {
    const RTM_NEWLINK: u16 = 16;
    const REQUEST_ACK: u16 = 5;
    const IFF_UP: u32 = 1;
    let mut message = Vec::new();
    message.extend(32_u32.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(REQUEST_ACK.to_ne_bytes());
    message.extend([0; 8]);
    // The record of the device: family and type, index, flags, mask of the flags.
    message.extend([0; 4]);
    message.extend(LOOPBACK.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    rustix::net::send(&socket, &message, SendFlags::empty())?;
    let mut answer = [0; 64];
    rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    let error = answer.get(16..20).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    match error.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::Error::other("a short answer")),
    }
}
