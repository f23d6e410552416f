//! Addresses of this machine, and names of its loopback. Used for decisions about connections. Texts for a session depend
//! on the loopback only.

use quackd_policy::hosts::Host;
use quackd_protocol::network::DenyReason;
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, UdpSocket};

/// Maximum size of `/etc/hosts` that is read, in bytes.
const MAX_HOSTS_FILE: u64 = 1024 * 1024;

/// Hosts that mean the session's own loopback, which programs reach without a proxy. Some send everything to a proxy.
#[derive(Debug, Default)]
pub(crate) struct NearHosts {
    names: HashSet<String>,
}

impl NearHosts {
    /// Reads the names that `/etc/hosts` maps to the loopback, inside of the session as outside, and adds the machine's.
    pub(crate) fn read_blocking() -> Self {
        let mut text = String::new();
        // A file that cannot be read maps no name.
        File::open("/etc/hosts")
            .and_then(|file| file.take(MAX_HOSTS_FILE).read_to_string(&mut text))
            .ok();
        Self { names: near_names(&text).chain([own_name()]).collect() }
    }

    pub(crate) fn contains(&self, host: &Host) -> bool {
        match host {
            Host::Name(name) => {
                name == "localhost" || name.ends_with(".localhost") || self.names.contains(name)
            }
            Host::Address(address) => is_loopback(*address),
        }
    }
}

fn near_names(hosts: &str) -> impl Iterator<Item = String> {
    let lines = hosts.lines().filter_map(|line| line.split('#').next());
    lines.flat_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
        let is_near = address.is_some_and(|address| address.to_canonical().is_loopback());
        words.filter(move |_| is_near).map(str::to_ascii_lowercase)
    })
}

/// The machine's own name.
pub(crate) fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase()
}

/// Returns the reason of a refusal for texts. They do not depend on which addresses this machine has: a session could
/// otherwise find them by trying.
pub(crate) fn told_reason(host: &Host, why: DenyReason) -> DenyReason {
    let is_open = matches!(why, DenyReason::NotListed | DenyReason::NoAnswerer);
    match host {
        Host::Address(address) if is_open && is_loopback(*address) => DenyReason::PrivateAddress,
        _ => why,
    }
}

fn is_loopback(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || address.is_unspecified()
}

/// Whether an address belongs to this machine: only such a one can be bound. An address that cannot be checked, for
/// example without free descriptors, is taken for one.
pub(crate) fn is_own_address(address: IpAddr) -> bool {
    is_own(&UdpSocket::bind((address, 0)).map(drop))
}

fn is_own(bound: &io::Result<()>) -> bool {
    let error = bound.as_ref().err().and_then(Errno::from_io_error);
    // No connection is possible to an address of a family that the kernel does not have.
    !matches!(error, Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT))
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

    #[test]
    fn names_of_the_loopback_are_near() {
        let hosts = "127.0.0.1 localhost VM # other\n10.0.0.1 far\n::1 six\n0.0.0.0 ad\ngarbage";
        let near = NearHosts { names: near_names(hosts).collect() };
        for (host, expected) in [
            ("vm.", true),
            ("six", true),
            ("a.LocalHost.", true),
            ("127.0.0.2", true),
            ("0.0.0.0", true),
            ("::ffff:127.0.0.1", true),
            ("far", false),
            ("other", false),
            ("ad", false),
            ("10.0.0.1", false),
            ("::ffff:8.8.8.8", false),
            ("localhost.example.invalid", false),
        ] {
            assert_eq!(near.contains(&Host::read(host).unwrap()), expected, "{host}");
        }
    }

    #[test]
    fn only_the_loopback_is_told_as_this_machine() {
        let host = |text: &str| Host::Address(text.parse().unwrap());
        for loopback in ["127.0.0.1", "0.0.0.0", "::1", "::ffff:127.0.0.2"] {
            let why = told_reason(&host(loopback), DenyReason::NotListed);
            assert_eq!(why, DenyReason::PrivateAddress, "{loopback}");
        }
        assert_eq!(told_reason(&host("127.0.0.1"), DenyReason::DenyRule), DenyReason::DenyRule);
        assert_eq!(told_reason(&host("192.0.2.1"), DenyReason::NotListed), DenyReason::NotListed);
        // An address with which this machine would send.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_ok() {
            let own = Host::Address(socket.local_addr().unwrap().ip());
            assert_eq!(told_reason(&own, DenyReason::NotListed), DenyReason::NotListed);
        }
    }
}
