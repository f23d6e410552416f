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

/// Networks of IPv4 that are refused, and those of IPv6 inside [`PUBLIC_V6`], from the special-purpose registries of
/// IANA, and the metadata service of one cloud that uses a public address.
const REFUSED: [IpNet; 18] = [
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
    v6(0x2001, 0, 0, 23),
    v6(0x2001, 0xdb8, 0, 32),
    v6(0x2002, 0, 0, 16),
    v6(0x3fff, 0, 0, 20),
];

/// Addresses of IPv6 in public use. All others are refused: some sites use them, and some overlay networks.
const PUBLIC_V6: IpNet = v6(0x2000, 0, 0, 3);

/// Addresses of IPv6 that stand for one of IPv4 (RFC 6052).
const NAT64: IpNet = v6(0x64, 0xff9b, 0, 96);

/// This machine, and the metadata services of clouds, which give credentials to each program that asks. Only a rule that
/// names exactly one address allows it.
const SINGLE: [IpNet; 9] = [
    v4(0, 0, 0, 0, 8),
    v4(127, 0, 0, 0, 8),
    v4(169, 254, 0, 0, 16),
    v4(168, 63, 129, 16, 32),
    v4(100, 100, 100, 200, 32),
    v4(192, 0, 0, 192, 32),
    v6(0, 0, 0, 127),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128)),
];

/// First address of IPv4 that does not mean one host: multicast, reserved and broadcast addresses
/// follow.
const MANY_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 0);

/// Returns true if no name may lead to this address. Addresses of this machine that are public are not known here.
#[must_use]
pub fn is_refused(address: IpAddr) -> bool {
    match in_v4(address) {
        address @ IpAddr::V4(_) => {
            // One cloud's metadata service has a public address.
            REFUSED.iter().chain(&SINGLE).any(|net| net.contains(&address))
        }
        address => {
            !PUBLIC_V6.contains(&address) || REFUSED.iter().any(|net| net.contains(&address))
        }
    }
}

/// Returns true for an address of a local network, about which the user may be asked: one of [`is_refused`], but not of this
/// machine, of a link, of a metadata service or of many hosts. Networks for documentation count, because some sites use
/// them.
#[must_use]
pub fn is_of_local_network(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_single = SINGLE.iter().any(|net| net.contains(&address));
    match address {
        IpAddr::V4(short) => is_refused(address) && !is_single && short < MANY_HOSTS,
        IpAddr::V6(long) => long.is_unique_local() && !is_single,
    }
}

/// Returns the IPv4 address that an IPv6 address stands for. Other addresses are returned as they
/// are.
pub(super) fn in_v4(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(long) if NAT64.contains(&IpAddr::V6(long)) => {
            let [.., a, b, c, d] = long.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        address => address,
    }
}

/// Returns true if a rule for the network `net` allows to connect to the refused `address` inside of it. A network that
/// also has public addresses means these only.
pub(super) fn names_refused(net: &IpNet, address: IpAddr, is_own: bool) -> bool {
    if net.prefix_len() == net.max_prefix_len() {
        return true;
    }

    let needs_exact = is_own || SINGLE.iter().any(|single| single.contains(&in_v4(address)));
    let is_in_one = REFUSED.iter().any(|refused| refused.contains(net));
    let overlaps = |other: &IpNet| other.contains(net) || net.contains(other);
    let is_local =
        is_in_one || (net.addr().is_ipv6() && !overlaps(&PUBLIC_V6) && !overlaps(&NAT64));

    !needs_exact && is_local
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
    fn the_user_is_asked_about_local_networks_only() {
        for (address, is_asked) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("192.168.0.9", true),
            ("100.64.0.1", true),
            ("203.0.113.7", true),
            ("fd12::1", true),
            ("127.0.0.1", false),
            ("0.0.0.0", false),
            ("169.254.169.254", false),
            ("100.100.100.200", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("fd00:ec2::254", false),
            ("fe80::1", false),
            ("::1", false),
            ("64:ff9b::a01:203", false),
            ("93.184.216.34", false),
        ] {
            assert_eq!(is_of_local_network(address.parse().unwrap()), is_asked, "{address}");
        }
    }

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
            "200:1234::1",
            "5f00::1",
            "100:0:0:1::1",
            "::ffff:0:7f00:1",
            "400::1",
            "1000::1",
            "4000::1",
            "64:ff9b::a9fe:a9fe",
            "fd20:ce::254",
            "100.100.100.200",
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
