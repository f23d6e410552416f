//! Opens the sockets and counters in the network namespace of a worker. Called by `enter`.

use super::private_network::{PrivateNetwork, listen};
use quackd_protocol::network::{PROXY_PORT, RESOLVER_PORT, SocketKind};
use rustix::fs::{Mode, OFlags, openat};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

impl PrivateNetwork {
    /// Opens the sockets, for which the process needs the rights of its user namespace. `ports` are those of hosts for
    /// programs that use no proxy, empty if these are not served. `proc` is an open `/proc` that shows this process.
    pub(crate) fn open(proc: impl AsFd, ports: &[u16]) -> Self {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let open = |name| openat(&proc, name, flags, Mode::empty()).ok().map(File::from);
        let counters = ["self/net/snmp", "self/net/snmp6"].into_iter().filter_map(open);
        let counters = counters.collect();
        let mut network =
            Self { sockets: Vec::new(), notes: Vec::new(), counters, port: PROXY_PORT, held: None };

        let here = Ipv4Addr::LOCALHOST;
        network.keep(SocketKind::Proxy, PROXY_PORT, listen(here, PROXY_PORT));
        if ports.is_empty() {
            return network;
        }

        network.keep(SocketKind::ResolverUdp, RESOLVER_PORT, receive());
        network.keep(SocketKind::ResolverTcp, RESOLVER_PORT, listen(here, RESOLVER_PORT));
        for &port in ports {
            // Each allowed name has its own address of 198.18.0.0/15, and all of them are local.
            let listener = listen(Ipv4Addr::UNSPECIFIED, port);
            network.keep(SocketKind::Transparent(port), port, listener);
        }
        network
    }

    fn keep<T: Into<OwnedFd>>(&mut self, kind: SocketKind, port: u16, made: io::Result<T>) {
        match made {
            Ok(socket) => self.sockets.push((kind, socket.into())),
            Err(error) => self.notes.push(format!(
                "programs without a proxy cannot reach port {port} of allowed hosts: {error}"
            )),
        }
    }
}

fn receive() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, RESOLVER_PORT))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
