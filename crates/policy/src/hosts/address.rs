//! Addresses that no name may lead to: this machine, local networks, metadata services of clouds, and addresses that
//! are not in public use.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const fn v4(a: u8, b: u8, c: u8, d: u8, length: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length))
}

const fn v6(a: u16, b: u16, c: u16, length: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), length))
}

/// Networks that are refused, from the special-purpose registries of IANA, and the metadata service of one cloud that
/// uses a public address.
const REFUSED: [IpNet; 24] = [
    v4(0, 0, 0, 0, 8),
    v4(10, 0, 0, 0, 8),
    v4(100, 64, 0, 0, 10),
    v4(127, 0, 0, 0, 8),
    v4(169, 254, 0, 0, 16),
    v4(172, 16, 0, 0, 12),
    v4(192, 0, 0, 0, 24),
    v4(192, 0, 2, 0, 24),
    v4(192, 88, 99, 0, 24),
    v4(192, 168, 0, 0, 16),
    v4(198, 18, 0, 0, 15),
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    v4(224, 0, 0, 0, 3),
    v4(168, 63, 129, 16, 32),
    v6(0x64, 0xff9b, 1, 48),
    v6(0x100, 0, 0, 64),
    v6(0x2001, 0, 0, 23),
    v6(0x2001, 0xdb8, 0, 32),
    v6(0x2002, 0, 0, 16),
    v6(0xfc00, 0, 0, 7),
    v6(0xfe80, 0, 0, 9),
    v6(0xff00, 0, 0, 8),
    v6(0x3fff, 0, 0, 20),
];

/// Networks whose addresses contain one of IPv4 in their last four bytes.
const EMBEDDING: [IpNet; 3] = [
    v6(0, 0, 0, 96),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96)),
    v6(0x64, 0xff9b, 0, 96),
];

/// Returns true if no name may lead to this address. Addresses of this machine that are public are not known here.
#[must_use]
pub fn is_refused(address: IpAddr) -> bool {
    if REFUSED.iter().any(|net| net.contains(&address)) {
        return true;
    }
    match address {
        IpAddr::V6(long) if EMBEDDING.iter().any(|net| net.contains(&address)) => {
            let [.., a, b, c, d] = long.octets();
            is_refused(Ipv4Addr::new(a, b, c, d).into())
        }
        _ => false,
    }
}

/// Returns the kind of a refused address, for the user, after "it resolves to 10.0.0.7,".
#[must_use]
pub fn local_refusal(address: IpAddr) -> &'static str {
    match address.to_canonical() {
        address if address.is_loopback() || address.is_unspecified() => {
            "an address of this machine"
        }
        IpAddr::V4(short) if short.is_private() => "a private address",
        IpAddr::V4(short) if short.is_link_local() => "a link-local address",
        IpAddr::V6(long) if long.is_unique_local() => "a private address",
        IpAddr::V6(long) if long.is_unicast_link_local() => "a link-local address",
        _ => "an address that no public host has",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_are_refused_in_every_form() {
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.31.255.255",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "224.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(is_refused(address.parse().unwrap()), "{address}");
        }
        for address in [
            "1.1.1.1",
            "93.184.216.34",
            "172.32.0.1",
            "198.20.0.1",
            "2606:4700::1111",
            "64:ff9b::101:101",
        ] {
            assert!(!is_refused(address.parse().unwrap()), "{address}");
        }
    }
}
