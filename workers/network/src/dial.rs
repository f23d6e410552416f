//! The connection to a host: resolves names outside of the session, refuses addresses that no name may lead to, and
//! connects to the addresses that were checked and to no other.

use crate::proxy::{Proxy, Request};
use quackd_policy::hosts::Host;
use quackd_protocol::network::{FailReason, MACHINE_HOST};
use rustix::io::Errno;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Time for connecting.
const DIAL_TIME: Duration = Duration::from_secs(10);

/// Time after which the next address is tried too.
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// Most addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;

/// Error of a connection to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DialError {
    /// The host leads to an address that the rules do not name.
    Private(IpAddr),
    Failed(FailReason),
}

/// Connects to a host that the rules allow.
pub(crate) async fn dial(proxy: &Proxy, request: &Request) -> Result<TcpStream, DialError> {
    let port = request.port;
    let addresses = match &request.host {
        Host::Name(name) if name == MACHINE_HOST => {
            return connect(vec![(Ipv4Addr::LOCALHOST, port).into()]).await;
        }
        Host::Name(name) => {
            let found = mixed(proxy.lookups.find(name).await);
            found.into_iter().map(|address| SocketAddr::from((address, port))).collect()
        }
        Host::Address(address) => vec![SocketAddr::from((*address, port))],
    };
    let rules = proxy.rules();
    let is_refused =
        |address: &SocketAddr| rules.refuses_address(address.ip(), port, is_own_address);
    let first_refused = addresses.iter().find(|address| is_refused(address)).map(SocketAddr::ip);
    let allowed: Vec<SocketAddr> =
        addresses.into_iter().filter(|address| !is_refused(address)).take(MAX_ADDRESSES).collect();
    match (allowed.is_empty(), first_refused) {
        (true, Some(address)) => Err(DialError::Private(address.to_canonical())),
        (true, None) => Err(DialError::Failed(FailReason::Unresolved)),
        _ => connect(allowed).await,
    }
}

/// Whether an address belongs to this machine: only such a one can be bound. An address that cannot be checked, for
/// example without free descriptors, is taken for one.
fn is_own_address(address: IpAddr) -> bool {
    is_own(&UdpSocket::bind((address, 0)).map(drop))
}

fn is_own(bound: &io::Result<()>) -> bool {
    let error = bound.as_ref().err().and_then(Errno::from_io_error);
    // No connection is possible to an address of a family that the kernel does not have.
    !matches!(error, Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT))
}

/// Addresses of IPv6 and IPv4 in turn.
fn mixed(found: Vec<IpAddr>) -> Vec<IpAddr> {
    let (six, four): (Vec<_>, Vec<_>) = found.into_iter().partition(IpAddr::is_ipv6);
    let (mut six, mut four) = (six.into_iter(), four.into_iter());
    let mut mixed = Vec::new();
    loop {
        match (six.next(), four.next()) {
            (None, None) => return mixed,
            (a, b) => mixed.extend(a.into_iter().chain(b)),
        }
    }
}

/// Connects to the first address that accepts. Tries the next one after an error or [`NEXT_ADDRESS`].
async fn connect(addresses: Vec<SocketAddr>) -> Result<TcpStream, DialError> {
    let connecting = async {
        let mut attempts = JoinSet::new();
        let mut addresses = addresses.into_iter();
        let mut next = addresses.next();
        loop {
            if let Some(address) = next.take() {
                attempts.spawn(TcpStream::connect(address));
                next = addresses.next();
            }
            tokio::select! {
                attempt = attempts.join_next() => match attempt {
                    Some(Ok(Ok(stream))) => return Some(stream),
                    Some(_failed) => {}
                    None => return None,
                },
                () = sleep(NEXT_ADDRESS), if next.is_some() => {}
            }
        }
    };
    let connected = timeout(DIAL_TIME, connecting).await.ok().flatten();
    let stream = connected.ok_or(DialError::Failed(FailReason::Unreachable))?;
    // Without it small messages of a tunnel wait for each other.
    stream.set_nodelay(true).ok();
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_that_the_kernel_does_not_have_is_foreign() {
        for (errno, own) in [
            (Errno::ADDRNOTAVAIL, false),
            (Errno::AFNOSUPPORT, false),
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOBUFS, true),
            (Errno::NOMEM, true),
            (Errno::ACCESS, true),
        ] {
            assert_eq!(is_own(&Err(errno.into())), own, "{errno}");
        }
        assert!(is_own(&Ok(())));
        assert!(is_own_address("127.0.0.1".parse().unwrap()));
        assert!(!is_own_address("192.0.2.1".parse().unwrap()));
    }
}
