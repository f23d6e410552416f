//! Sockets and counters in the network namespace of a worker without the machine's network. Opened by `enter`, before
//! the first command can take the ports.
//!
//! With the network off, the worker serves the sockets and refuses everything. With a list of hosts, the worker passes
//! them to the supervisor, and a proxy outside serves them.

use quackd_protocol::network::{PROXY_PORT, SocketKind};
use std::fs::File;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

/// Content of `resolv.conf` inside: names the resolver on the loopback.
pub(crate) const RESOLVER_FILE: &str = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n";

/// The network of a worker that has only a loopback.
#[derive(Debug)]
pub struct PrivateNetwork {
    /// Sockets by which the worker learns which hosts commands tried to reach, if the network is off.
    pub deny: Option<DenySockets>,
    /// Sockets for the proxy, if the policy names hosts.
    pub hosts: Vec<(SocketKind, OwnedFd)>,
    /// Sockets that could not be opened, each a sentence for the user.
    pub notes: Vec<String>,
    /// The namespace's `snmp` and `snmp6` of `/proc/net`. Missing files are omitted.
    pub counters: Vec<File>,
}

/// Sockets of a worker whose network is off.
#[derive(Debug)]
pub struct DenySockets {
    /// Listens on 127.0.0.1, [`PROXY_PORT`]. Non-blocking.
    pub proxy: io::Result<TcpListener>,
    /// Receives on 127.0.0.1, port 53. Non-blocking.
    pub resolver: io::Result<UdpSocket>,
}

#[cfg(target_os = "linux")]
mod open {
    use super::{DenySockets, File, OwnedFd, PROXY_PORT, PrivateNetwork, SocketKind, io};
    use rustix::fs::{Mode, OFlags, openat};
    use std::net::{Ipv4Addr, TcpListener, UdpSocket};
    use std::os::fd::AsFd;

    const RESOLVER_PORT: u16 = 53;

    impl PrivateNetwork {
        /// Opens the sockets, for which the process needs the rights of its user namespace. `hosts` are the ports for
        /// programs that use no proxy, empty if these are not served; `None` if the network is off. `proc` is an open `/proc` that shows this process.
        pub(crate) fn open(proc: impl AsFd, hosts: Option<&[u16]>) -> Self {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let open = |name| openat(&proc, name, flags, Mode::empty()).ok().map(File::from);
            let counters = ["self/net/snmp", "self/net/snmp6"].into_iter().filter_map(open);
            let mut network = Self {
                deny: None,
                hosts: Vec::new(),
                notes: Vec::new(),
                counters: counters.collect(),
            };
            match hosts {
                None => {
                    let (proxy, resolver) = (listen(Ipv4Addr::LOCALHOST, PROXY_PORT), receive());
                    network.deny = Some(DenySockets { proxy, resolver });
                }
                Some(ports) => network.open_for_hosts(ports),
            }
            network
        }

        fn open_for_hosts(&mut self, ports: &[u16]) {
            let here = Ipv4Addr::LOCALHOST;
            self.keep(SocketKind::Proxy, PROXY_PORT, listen(here, PROXY_PORT));
            if ports.is_empty() {
                return;
            }
            self.keep(SocketKind::ResolverUdp, RESOLVER_PORT, receive());
            self.keep(SocketKind::ResolverTcp, RESOLVER_PORT, listen(here, RESOLVER_PORT));
            for &port in ports {
                let listener = listen(Ipv4Addr::UNSPECIFIED, port);
                self.keep(SocketKind::Transparent(port), port, listener);
            }
        }

        fn keep<T: Into<OwnedFd>>(&mut self, kind: SocketKind, port: u16, made: io::Result<T>) {
            match made {
                Ok(socket) => self.hosts.push((kind, socket.into())),
                Err(error) => self.notes.push(format!(
                    "programs without a proxy cannot reach port {port} of allowed hosts: {error}"
                )),
            }
        }
    }

    fn listen(address: Ipv4Addr, port: u16) -> io::Result<TcpListener> {
        let listener = TcpListener::bind((address, port))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    fn receive() -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, RESOLVER_PORT))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}
