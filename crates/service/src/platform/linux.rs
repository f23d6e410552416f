//! The names of [`super`] for Linux.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

/// False: the service manager is systemd.
pub(crate) const HAS_LAUNCHD: bool = false;

/// Returns true if a socket that was passed listens.
pub(crate) fn is_listening(socket: &UnixListener) -> io::Result<bool> {
    Ok(rustix::net::sockopt::socket_acceptconn(socket)?)
}

/// Returns the address of a name that has no file.
pub(crate) fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

#[cfg(test)]
mod tests {
    use crate::Notifier;
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    #[test]
    fn an_abstract_address_works_and_a_relative_one_is_refused() {
        let notifier = |path: &str| {
            Notifier::from_variables(&|name| (name == "NOTIFY_SOCKET").then(|| path.into()))
        };
        let name = format!("quackd-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        notifier(&format!("@{name}")).unwrap().unwrap().alive();
        let mut bytes = [0; 2048];
        let n = manager.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..n], b"WATCHDOG=1");
        assert!(notifier("relative").is_err());
        assert!(notifier("").unwrap().is_none());
        assert!(Notifier::from_variables(&|_| None).unwrap().is_none());
    }
}
