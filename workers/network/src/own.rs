//! Addresses of this machine. Used for decisions about connections, and for texts, which do not propose to allow them.

use quackd_policy::hosts::Host;
use quackd_protocol::network::DenyReason;
use rustix::io::Errno;
use std::io;
use std::net::{IpAddr, UdpSocket};

/// Returns the reason of a refusal for texts. An unlisted address of this machine is one.
pub(crate) fn told_reason(host: &Host, why: DenyReason) -> DenyReason {
    let is_open = matches!(why, DenyReason::NotListed | DenyReason::NoAnswerer);
    match host {
        Host::Address(address) if is_open && is_own_address(*address) => DenyReason::PrivateAddress,
        _ => why,
    }
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
    fn an_address_of_this_machine_is_refused_as_one() {
        let own = Host::Address("127.0.0.1".parse().unwrap());
        let other = Host::Address("192.0.2.1".parse().unwrap());
        assert_eq!(told_reason(&own, DenyReason::NotListed), DenyReason::PrivateAddress);
        assert_eq!(told_reason(&own, DenyReason::DenyRule), DenyReason::DenyRule);
        assert_eq!(told_reason(&other, DenyReason::NotListed), DenyReason::NotListed);
    }
}
