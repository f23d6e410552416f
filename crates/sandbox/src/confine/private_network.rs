//! Sockets and counters in the network namespace of a worker without the machine's network. Opened by `enter`, before
//! the first command can take the ports. Without namespaces it is one socket on the machine's loopback.
//!
//! The worker passes the sockets to the supervisor, and a proxy outside serves them: it refuses every host, or all but
//! those that rules allow.

use quackd_protocol::network::SocketKind;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;

/// The network of a worker that has only a loopback, or only the port of its proxy.
#[derive(Debug)]
pub struct PrivateNetwork {
    /// Sockets for the proxy.
    pub sockets: Vec<(SocketKind, OwnedFd)>,
    /// Sockets that could not be opened, each a sentence for the user.
    pub notes: Vec<String>,
    /// The namespace's `snmp` and `snmp6` of `/proc/net`. Missing files are omitted.
    pub counters: Vec<File>,
    /// Port of the proxy on 127.0.0.1.
    pub port: u16,
    /// A socket of the machine's loopback that is to stay open as long as commands run. Otherwise another program could
    /// listen at the port of a proxy that has ended, and commands would reach it. `None` in a namespace.
    pub held: Option<TcpListener>,
}

impl PrivateNetwork {
    /// Opens a socket for a proxy on the machine's loopback, at a free port.
    ///
    /// # Errors
    /// No port or descriptor is free.
    pub fn on_the_machine() -> io::Result<Self> {
        let held = listen(Ipv4Addr::LOCALHOST, 0)?;
        let port = held.local_addr()?.port();
        let sockets = vec![(SocketKind::Proxy, held.try_clone()?.into())];
        Ok(Self { sockets, notes: Vec::new(), counters: Vec::new(), port, held: Some(held) })
    }
}

pub(super) fn listen(address: Ipv4Addr, port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((address, port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_stays_taken_when_the_proxy_has_ended() {
        let mut network = PrivateNetwork::on_the_machine().unwrap();
        let sockets = std::mem::take(&mut network.sockets);
        assert!(matches!(sockets.as_slice(), [(SocketKind::Proxy, _)]));
        drop(sockets);
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, network.port)).is_err());
    }
}
