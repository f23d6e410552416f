//! Commands that a text proposes: their words, and the hosts that they may name. An agent may pass such a text on to
//! its user.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Metadata services of clouds at addresses that are not link-local, and networks that lead to this machine.
const KEPT_V4: [(Ipv4Addr, u32); 6] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(100, 100, 100, 200), 32),
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(192, 0, 0, 192), 32),
];
const KEPT_V6: [(Ipv6Addr, u32); 6] = [
    (Ipv6Addr::UNSPECIFIED, 127),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0, 0), 32),
];

/// Names of this machine and of metadata services, also with labels around them. `host.quackd.internal` is not
/// listed: the name states its meaning, and other names do not lead to it.
const KEPT_NAMES: [&str; 5] =
    ["localhost", "ip6-localhost", "ip6-loopback", "metadata", "instance-data"];

/// Returns the option that names a session, after a space. Empty without a label.
#[must_use]
pub fn of_session(label: &str) -> String {
    if label.is_empty() { String::new() } else { format!(" --session {}", quoted(label)) }
}

/// Returns a word as a shell reads it.
#[must_use]
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-._/:@+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Whether a text may propose to allow the host. False for this machine, link-local addresses and metadata services, in
/// every spelling.
#[must_use]
pub fn may_be_suggested(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    if let Ok(address) = host.parse::<IpAddr>() {
        return !is_kept(address);
    }

    let host = host.to_ascii_lowercase();
    let last = host.rsplit('.').next().unwrap_or_default();
    // Some programs read such names as addresses.
    let is_number = last.starts_with(|c: char| c.is_ascii_digit());

    let is_kept = |name: &str| {
        host == *name
            || host.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
            || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))
    };

    !host.is_empty() && !is_number && !KEPT_NAMES.into_iter().any(is_kept)
}

fn is_kept(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(short) => {
            let is_in = |(net, bits): &(Ipv4Addr, u32)| {
                (u32::from(short) ^ u32::from(*net)).leading_zeros() >= *bits
            };
            short.is_broadcast() || KEPT_V4.iter().any(is_in)
        }
        IpAddr::V6(long) => {
            let is_in = |(net, bits): &(Ipv6Addr, u32)| {
                (u128::from(long) ^ u128::from(*net)).leading_zeros() >= *bits
            };
            KEPT_V6.iter().any(is_in) || inside(long).is_some_and(|short| is_kept(short.into()))
        }
    }
}

/// The address of IPv4 that a translated, tunneled or compatible address leads to.
fn inside(long: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = long.octets();
    let four = |at: usize| {
        let part = octets.get(at..at + 4)?;
        <[u8; 4]>::try_from(part).ok().map(Ipv4Addr::from)
    };

    match long.segments() {
        // NAT64, IPv4-compatible and IPv4-translated addresses.
        [0x64, 0xff9b, ..] | [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => four(12),
        // 6to4.
        [0x2002, ..] => four(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_and_metadata_services_are_never_suggested() {
        for host in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "[fe80::1]",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "::169.254.169.254",
            "::ffff:0:7f00:1",
            "localhost",
            "LOCALHOST.",
            "x.localhost",
            "localhost.localdomain",
            "metadata",
            "metadata.google.internal",
            "instance-data.ec2.internal",
            "2852039166",
            "0xa9fea9fe",
            "169.254.43518",
            "",
        ] {
            assert!(!may_be_suggested(host), "{host}");
        }
        for host in [
            "registry.example.org",
            "host.quackd.internal",
            "10.0.0.7",
            "192.168.1.20",
            "93.184.216.34",
            "2606:2800:220:1::1",
            "fd12::7",
            "metadata-store.example.org",
            "db.example",
            "64:ff9b::808:808",
        ] {
            assert!(may_be_suggested(host), "{host}");
        }
    }
}
