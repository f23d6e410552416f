//! Sockets and counters in the network namespace of a worker without a network. Opened by `enter`, before the first
//! command can take the ports. Served by the worker.

use std::fs::File;
use std::io;
use std::net::{TcpListener, UdpSocket};

/// Port of the HTTP proxy on 127.0.0.1.
pub const PROXY_PORT: u16 = 61_080;

/// Content of `resolv.conf` inside: names the worker's own resolver.
pub(crate) const RESOLVER_FILE: &str = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n";

/// Sockets and counters by which the worker learns which hosts commands tried to reach.
#[derive(Debug)]
pub struct NoNetwork {
    /// Listens on 127.0.0.1, [`PROXY_PORT`]. Non-blocking.
    pub proxy: io::Result<TcpListener>,
    /// Receives on 127.0.0.1, port 53. Non-blocking.
    pub resolver: io::Result<UdpSocket>,
    /// The namespace's `snmp` and `snmp6` of `/proc/net`. Missing files are omitted.
    pub counters: Vec<File>,
}

#[cfg(target_os = "linux")]
impl NoNetwork {
    /// Binds both ports, for which the process needs the rights of its user namespace. `proc` is an open `/proc`
    /// that shows this process.
    pub(crate) fn open(proc: impl std::os::fd::AsFd) -> Self {
        use rustix::fs::{Mode, OFlags, openat};
        use std::net::Ipv4Addr;

        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let open = |name| openat(&proc, name, flags, Mode::empty()).ok().map(File::from);
        let proxy = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT));
        let resolver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 53));
        Self {
            proxy: proxy.and_then(|it| it.set_nonblocking(true).map(|()| it)),
            resolver: resolver.and_then(|it| it.set_nonblocking(true).map(|()| it)),
            counters: ["self/net/snmp", "self/net/snmp6"].into_iter().filter_map(open).collect(),
        }
    }
}
