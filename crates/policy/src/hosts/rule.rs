//! One rule: its text, its parts, and what it covers.

use super::host::{Host, HostError};
use ipnet::IpNet;
use quackd_protocol::network::MACHINE_HOST;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Maximum number of ports in one rule. The error text repeats it.
const MAX_PORTS: usize = 16;

/// Ports of a rule without ports.
const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// Maximum length of a rule, in bytes. The error text repeats it.
const MAX_RULE: usize = 512;

/// A rule as the user writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// A rule for hosts.
    Host(HostRule),
    /// A list of hosts with a name.
    Preset {
        /// True if the hosts are denied.
        denies: bool,
        /// The name, without `@`.
        name: String,
    },
}

/// A rule for hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    /// True if the hosts are denied.
    pub denies: bool,
    /// The hosts.
    pub target: HostTarget,
    /// The ports.
    pub ports: Ports,
    /// True to allow traffic on ports 80 and 443 that is neither HTTP nor TLS.
    pub raw: bool,
}

/// Hosts of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostTarget {
    /// One name.
    Name(String),
    /// All names with one or more labels before this one, but not this one.
    Below(String),
    /// Addresses.
    Addresses(IpNet),
    /// The loopback of this machine.
    Machine,
    /// Every host. No rule of a user has this target: it replaces an unreadable rule that denies.
    All,
}

/// Ports of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ports {
    /// Every port.
    All,
    /// These ports.
    List(Vec<u16>),
}

/// Reason for rejecting a rule. Each text is one line for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The target is not a host.
    #[error("rule {rule:?}: the host {why}")]
    Host {
        /// The rule.
        rule: String,
        /// The problem.
        why: HostError,
    },
    /// The part after the colon is not a list of ports.
    #[error(
        "rule {0:?}: the ports are numbers from 1 to 65535 with commas between them, at most 16, or *"
    )]
    Ports(String),
    /// A wildcard above names of unrelated owners.
    #[error("rule {0:?} covers names of unrelated owners: name a host or a registered domain")]
    TooWide(String),
    /// A wildcard in another place than the first label.
    #[error("rule {0:?}: * may only be the first label, as in *.example.com")]
    Wildcard(String),
    /// A name of a preset with unusual characters, or a preset where none may be.
    #[error("rule {0:?}: a preset has the form @name")]
    Preset(String),
    /// The rule is a URL.
    #[error("rule {0:?}: name the host alone, as in example.com or example.com:8443")]
    Url(String),
    /// The rule for this machine needs ports.
    #[error("rule {0:?}: name the ports, as in machine:5432")]
    MachinePorts(String),
    /// The rule is too long.
    #[error("a rule has at most 512 bytes")]
    TooLong,
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_RULE {
            return Err(RuleError::TooLong);
        }

        let (denies, rest) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };

        if let Some(name) = rest.strip_prefix('@') {
            let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            return if !name.is_empty() && name.len() <= 32 && name.chars().all(is_name) {
                Ok(Self::Preset { denies, name: name.to_owned() })
            } else {
                Err(RuleError::Preset(text.to_owned()))
            };
        }

        if rest.contains("://") {
            return Err(RuleError::Url(text.to_owned()));
        }

        let (rest, raw) = match rest.strip_suffix("/raw") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };

        let (target, ports) = split_ports(rest);
        let ports = match ports {
            Some(ports) => Ports::parse(ports).ok_or_else(|| RuleError::Ports(text.to_owned()))?,
            None if HostTarget::parse(target, text, denies) == Ok(HostTarget::Machine) => {
                return Err(RuleError::MachinePorts(text.to_owned()));
            }
            // A rule that denies a host denies all of it.
            None if denies => Ports::All,
            None => Ports::List(DEFAULT_PORTS.to_vec()),
        };

        let target = HostTarget::parse(target, text, denies)?;
        Ok(Self::Host(HostRule { denies, target, ports, raw }))
    }
}

/// Splits off the ports. The colons of an IPv6 address are inside brackets, or in a network with a prefix length.
fn split_ports(text: &str) -> (&str, Option<&str>) {
    if text.starts_with('[') {
        return match text.split_once("]:") {
            Some((address, ports)) => (address.get(1..).unwrap_or_default(), Some(ports)),
            None => (text.trim_start_matches('[').trim_end_matches(']'), None),
        };
    }
    match text.rsplit_once(':') {
        Some((target, ports)) if !target.contains(':') => (target, Some(ports)),
        _ => (text, None),
    }
}

impl Ports {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        let parsed = text.split(',').map(|port| port.parse().ok().filter(|port| *port != 0));
        let ports: Vec<u16> = parsed.collect::<Option<_>>()?;
        (ports.len() <= MAX_PORTS).then_some(Self::List(ports))
    }

    fn covers(&self, port: u16) -> bool {
        match self {
            Self::All => true,
            Self::List(ports) => ports.contains(&port),
        }
    }
}

impl HostTarget {
    fn parse(text: &str, rule: &str, denies: bool) -> Result<Self, RuleError> {
        let host_error = |why| RuleError::Host { rule: rule.to_owned(), why };
        if text == "machine" {
            return Ok(Self::Machine);
        }
        if let Ok(addresses) = text.parse::<IpNet>() {
            // Ignore the bits after the prefix, as in `192.0.2.7/24`.
            return Ok(Self::Addresses(addresses.trunc()));
        }
        if let Some(name) = text.strip_prefix("*.") {
            let Host::Name(name) = Host::read(name).map_err(host_error)? else {
                return Err(RuleError::Wildcard(rule.to_owned()));
            };
            // The list of public suffixes has the private ones too, such as those of hosting services.
            return match psl::domain_str(&name) {
                Some(_registered) => Ok(Self::Below(name)),
                // A rule that denies may be wide.
                None if denies => Ok(Self::Below(name)),
                None => Err(RuleError::TooWide(rule.to_owned())),
            };
        }

        if text.contains('*') {
            return Err(RuleError::Wildcard(rule.to_owned()));
        }

        Ok(match Host::read(text).map_err(host_error)? {
            Host::Name(name) if name == MACHINE_HOST => Self::Machine,
            Host::Name(name) => Self::Name(name),
            Host::Address(address) => Self::Addresses(IpNet::from(address)),
        })
    }

    /// Returns true if the host is one of these.
    #[must_use]
    pub fn covers(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Name(name), Host::Name(host)) => name == host,
            (Self::Below(name), Host::Name(host)) => {
                // Only a rule for this machine covers the name of this machine.
                host != MACHINE_HOST
                    && host
                        .strip_suffix(name.as_str())
                        .is_some_and(|above| above.ends_with('.') && above.len() > 1)
            }
            (Self::Addresses(net), Host::Address(address)) => covers_address(net, *address),
            (Self::Machine, Host::Name(host)) => host == MACHINE_HOST,
            (Self::All, _) => true,
            _ => false,
        }
    }
}

fn covers_address(net: &IpNet, address: IpAddr) -> bool {
    // IPv6 has a second form of each IPv4 address, such as `::ffff:192.0.2.1`.
    net.contains(&address.to_canonical())
}

impl HostRule {
    /// Returns the rule that denies all hosts, in place of an unreadable one.
    pub(super) fn deny_all() -> Self {
        Self { denies: true, target: HostTarget::All, ports: Ports::All, raw: false }
    }

    /// Returns true if the rule names this host and port.
    #[must_use]
    pub fn covers(&self, host: &Host, port: u16) -> bool {
        self.ports.covers(port) && self.target.covers(host)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(rule) => rule.fmt(f),
            Self::Preset { denies, name } => write!(f, "{}@{name}", if *denies { "!" } else { "" }),
        }
    }
}

/// Writes the rule so that parsing it again gives the same rule.
impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.denies {
            f.write_str("!")?;
        }
        match &self.target {
            HostTarget::Name(name) => f.write_str(name)?,
            HostTarget::Below(name) => write!(f, "*.{name}")?,
            HostTarget::Addresses(net) if net.prefix_len() == net.max_prefix_len() => {
                match net.addr() {
                    IpAddr::V4(address) => write!(f, "{address}")?,
                    IpAddr::V6(address) => write!(f, "[{address}]")?,
                }
            }
            HostTarget::Addresses(net @ IpNet::V4(_)) => write!(f, "{net}")?,
            HostTarget::Addresses(net @ IpNet::V6(_)) => write!(f, "[{net}]")?,
            HostTarget::Machine => f.write_str("machine")?,
            HostTarget::All => f.write_str("*")?,
        }

        // Parsing adds the default ports again.
        let is_default = match (&self.ports, self.denies) {
            (Ports::All, denies) => denies,
            (Ports::List(ports), denies) => !denies && *ports == DEFAULT_PORTS,
        };

        match &self.ports {
            _ if is_default => {}
            Ports::All => f.write_str(":*")?,
            Ports::List(ports) => {
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                write!(f, ":{}", ports.join(","))?;
            }
        }
        if self.raw { f.write_str("/raw") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_written_as_they_are_read() {
        for (text, expected) in [
            ("Example.com", "example.com"),
            ("*.example.com:443", "*.example.com:443"),
            ("!evil.example", "!evil.example"),
            ("!evil.example:22", "!evil.example:22"),
            ("a.example:80,443", "a.example"),
            ("a.example:*", "a.example:*"),
            ("ssh.example.com:443/raw", "ssh.example.com:443/raw"),
            ("10.0.0.7:443", "10.0.0.7:443"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("[fd00::1]:443", "[fd00::1]:443"),
            ("fd00::/8", "[fd00::/8]"),
            ("[fd00::/8]:22", "[fd00::/8]:22"),
            ("machine:5432", "machine:5432"),
            ("host.quackd.internal:1", "machine:1"),
            ("@npm", "@npm"),
            ("!@github", "!@github"),
            ("*.b\u{fc}cher.example", "*.xn--bcher-kva.example"),
        ] {
            let rule: Rule = text.parse().unwrap();
            assert_eq!(rule.to_string(), expected, "{text}");
            assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule, "{text}");
        }
    }

    #[test]
    fn rules_that_say_too_much_or_nothing_are_refused() {
        for text in ["*.com", "*.co.uk", "*.github.io", "*.internal-without-owner"] {
            assert_eq!(text.parse::<Rule>(), Err(RuleError::TooWide(text.into())), "{text}");
        }
        for text in ["*", "a.*.example", "*.10.0.0.1", "**.example.com", "a*.example"] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
        for text in [
            "",
            "!",
            "@",
            "@NPM",
            "a.example:0",
            "a.example:x",
            "a.example:70000",
            "https://a.example/",
            "machine",
            "host.quackd.internal",
            "!Host.Quackd.Internal.",
            ":443",
            "a b",
        ] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
        assert_eq!("x".repeat(513).parse::<Rule>(), Err(RuleError::TooLong));
        let many = format!("a.example:{}", vec!["1"; 17].join(","));
        assert!(many.parse::<Rule>().is_err());
    }
}
